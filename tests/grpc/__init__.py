"""Tests of the gRPC services."""
