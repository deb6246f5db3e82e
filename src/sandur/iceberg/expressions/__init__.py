"""Filters: parsed from JSON, bound to a schema, projected to partitions, evaluated over arrays, written as JSON."""
