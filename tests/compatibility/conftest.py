"""Servers in this process on stores of other releases."""

from tests.server.conftest import _quiet, catalogs

__all__ = ["_quiet", "catalogs"]
