"""Storage credentials of clients: the profile of a location, credentials for it, and the sealed secrets of profiles."""
