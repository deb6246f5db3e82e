"""Scan planning: stores plans, reads and caches manifests, and returns tasks. Any server can continue any plan."""
