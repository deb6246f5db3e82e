"""Iceberg's own REST Compatibility Kit, run against a server of ours."""
