"""Authentication: who sends a request, by a token of this server or of a provider, an API key or a client secret."""
