"""Maintenance on Spark: one application works on many tables at once, with the procedures of Iceberg and Delta."""
