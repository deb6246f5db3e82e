"""Events of the catalog, and undrop: names, pointers, namespaces and other records that carry their last event."""
