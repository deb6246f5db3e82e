"""A load test for Iceberg REST catalogs: the same load on each, in turns, in one run, by a compiled generator."""
