"""Delta tables, decided: schema, protocol, properties, commits, and how a table is created."""
