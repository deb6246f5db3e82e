"""Backups of a catalog: a consistent copy of its records while they change, and the restore into an empty store."""
