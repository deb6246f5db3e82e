"""The web UI: pages for people, made by the server."""
