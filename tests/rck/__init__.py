"""Iceberg's REST Compatibility Kit, run against a Sandur server."""
