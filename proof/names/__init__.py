"""Names: create, stage, drop, rename, namespaces, transactions that create, the orphan janitor, and loads."""
