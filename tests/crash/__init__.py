"""Crash tests: what is left must be consistent, and usable without repair."""
