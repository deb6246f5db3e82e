"""The gRPC services: the operations of the REST APIs as the package sandur.v1."""
