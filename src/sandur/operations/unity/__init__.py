"""The operations of Unity Catalog's API on the same catalogs, namespaces and names as the other protocols.

Volumes, functions and models are created, renamed and dropped like tables. Credentials, users, grants and model
versions are records that change by one signed swap (`containers.records`). Lists come from the index alone.
"""
