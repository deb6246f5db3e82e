"""The demo: an empty folder, a server, and real clients that share tables through it."""
