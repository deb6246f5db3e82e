"""Rows of tables for people, read by DuckDB in a process of its own that can reach nothing but the tables."""
