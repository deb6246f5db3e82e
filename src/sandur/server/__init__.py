"""HTTP: decode a request, call one operation, encode its answer."""
