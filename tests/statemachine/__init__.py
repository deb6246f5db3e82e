"""Concurrent histories of the catalog against a sequential model: every answer was true at some moment."""
