"""The gRPC definitions, and the code that `python -m checks.grpc_code` generates from them, for servers and clients."""
