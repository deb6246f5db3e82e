"""Avro files: containers, codecs and records."""
