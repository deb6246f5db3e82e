"""Principals, groups and their credentials, the keys that sign tokens, and the first administrator."""
