"""Scan planning: tables made of manifests alone, and planners side by side."""
