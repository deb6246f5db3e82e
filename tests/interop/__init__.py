"""Real engines and clients, unmodified, against a real server."""
