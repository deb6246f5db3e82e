"""Servers for the tests of events."""

from tests.server.conftest import _quiet, catalogs

__all__ = ["_quiet", "catalogs"]
