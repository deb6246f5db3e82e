"""What the catalog remembers: objects, versions and compare-and-swap."""
