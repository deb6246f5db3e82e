"""Spark with Iceberg's runtime, against a real server: everything a session does, on a folder and on a bucket."""
