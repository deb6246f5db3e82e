"""The Unity Catalog API: catalogs, schemas, tables, securables, credentials, users and grants."""
