"""The demonstration: a fresh folder, a server, and real clients that share tables through it."""
