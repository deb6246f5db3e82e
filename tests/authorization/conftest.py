"""Servers in this process, as the other tests of the server open them."""

from tests.server.conftest import _quiet, catalogs

__all__ = ["_quiet", "catalogs"]
