"""Rules of Delta tables: types, columns, protocol, properties, commits, and the plan of a new table."""
