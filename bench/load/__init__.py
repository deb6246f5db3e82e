"""A load for Iceberg REST catalogs: the same on each, in turns, in one run, by a compiled generator."""
