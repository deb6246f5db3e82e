"""Work that Spark executors do on the store, one module per task."""
