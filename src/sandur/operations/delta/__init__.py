"""Delta tables: staged, created, loaded, committed to, renamed and dropped, over one swappable record per table."""
