"""What an Iceberg commit means: table and view metadata, updates and requirements, as pure values."""
