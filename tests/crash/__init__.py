"""Crash tests: the remaining state must be consistent, and usable without repair."""
