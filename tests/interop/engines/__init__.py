"""Engines too heavy for every run: each in an environment of its own, driven as a process."""
