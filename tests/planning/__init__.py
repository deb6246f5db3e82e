"""Scan planning: tables that consist of manifests only, and comparisons of planners."""
