"""Tests of the web UI."""
