"""Sandur's own API at `/api/sandur/v1`: principals, groups and the public keys of this server."""
