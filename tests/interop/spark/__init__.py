"""Spark with Iceberg's runtime, against a real server: all operations of a session, on a folder and on a bucket."""
