"""Storage credentials of clients: the profile of a location, and credentials for it."""
