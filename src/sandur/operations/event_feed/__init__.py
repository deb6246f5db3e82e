"""The feed for readers: events over HTTP, as a stream, and delivered to subscribers."""
