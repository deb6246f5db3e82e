"""The HTTP server: a handler decodes a request, calls one operation and encodes its answer.

One kit (http, routing, context, errors, identity) serves all dialects. A dialect is a table of routes, their handlers,
and a table of errors.
"""
