"""Concurrent histories of the catalog against a sequential model: every answer has a moment at which it was true."""
