"""Names: create, stage, drop, rename, namespaces, transactions that create, orphan collection, and what loads see."""
