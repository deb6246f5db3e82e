"""What a session is told of the server it works on."""

import json

import msgspec

from tests.interop.serving import Served


def told(served: Served) -> str:
    """What a session must know of a server, as JSON."""
    s3 = None if served.s3 is None else msgspec.to_builtins(served.s3)
    return json.dumps({"uri": served.url, "token": served.token, "s3": s3, "properties": served.pyiceberg_properties})
