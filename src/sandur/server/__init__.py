"""The HTTP server: a handler decodes a request, calls one operation and encodes its answer.

The kit (http, routing, context, errors, identity) serves all dialects; a dialect is a table of routes and one of errors.
"""
