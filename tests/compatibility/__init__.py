"""Stores and records of other releases."""
