"""The configuration of a session: the server that it uses."""

import json

import msgspec

from tests.interop.server_address import Served


def session_config(served: Served) -> str:
    """The address, token and storage of a server, as JSON."""
    s3 = None if served.s3 is None else msgspec.to_builtins(served.s3)
    return json.dumps({"uri": served.url, "token": served.token, "s3": s3, "properties": served.pyiceberg_properties})


def catalog_config(uri: str, token: str) -> str:
    """The configuration for a catalog in a folder that only its token opens."""
    return json.dumps({"uri": uri, "token": token, "s3": None, "properties": {"token": token}})
