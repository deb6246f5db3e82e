"""Credentials for clients: what they open on each cloud, and how their issuers fail."""
