"""Tests of the command line against a real server."""
