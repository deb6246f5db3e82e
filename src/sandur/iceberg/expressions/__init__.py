"""Filters: read from JSON, bound to a schema, projected to partitions, evaluated over columns, written as JSON."""
