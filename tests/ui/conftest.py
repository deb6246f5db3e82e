"""Servers and pages for the tests of the UI."""

from tests.server.conftest import _quiet, catalogs, client

__all__ = ["_quiet", "catalogs", "client"]
