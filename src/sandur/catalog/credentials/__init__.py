"""Access of clients to the files of tables: storage profiles, credentials, signed requests."""
