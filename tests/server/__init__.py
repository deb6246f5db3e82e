"""The HTTP server: what stands on the wire, and what no input may break."""
