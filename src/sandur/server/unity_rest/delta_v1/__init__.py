"""The Delta API of Unity Catalog, version 1: managed Delta tables, and the coordination of their commits."""
