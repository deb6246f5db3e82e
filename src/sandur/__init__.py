"""Sandur: one catalog for Iceberg and Delta tables that needs nothing but object storage."""

__version__ = "0.1.0"
