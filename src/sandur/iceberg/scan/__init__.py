"""Scan planning: which files a scan reads, with which deletes, and what is left of its filter for each."""
