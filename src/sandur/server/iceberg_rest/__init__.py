"""The Iceberg REST protocol."""
