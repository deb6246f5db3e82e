"""The Iceberg REST API: namespaces, tables, views, transactions and scan planning."""
