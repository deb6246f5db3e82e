"""The connection data of a server for clients: its address, and the store of its tables."""

import itertools
from dataclasses import dataclass

import pytest
from pyiceberg.catalog import load_catalog

from sandur.settings import S3Settings
from tests.interop.matrix import FOLDER, S3
from tests.server.process import ServerProcess

# Parameters of the fixture `served`: the folder by default; with `make interop` the bucket, too.
LATER_ON_S3 = (FOLDER, pytest.param(S3, marks=pytest.mark.interop))


@dataclass(frozen=True)
class Served:
    """A running server. `s3` has the S3 settings of clients, or None if the tables are in a folder.

    Clients of a server that gives them credentials have no keys there. `token` is empty without authentication.
    """

    store: str
    server: ServerProcess
    s3: S3Settings | None = None
    token: str = ""

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def has_keys(self) -> bool:
        """Whether clients have keys of their own for the bucket."""
        return self.s3 is not None and bool(self.s3.access_key_id)

    @property
    def pyiceberg_properties(self) -> dict[str, str]:
        """The properties besides the address, for PyIceberg and clients that use its names."""
        secured = {"token": self.token} if self.token else {}
        if self.s3 is None or not self.has_keys:
            return secured
        return secured | {
            "s3.endpoint": self.s3.endpoint,
            "s3.region": self.s3.region,
            "s3.access-key-id": self.s3.access_key_id,
            "s3.secret-access-key": self.s3.secret_access_key,
            "s3.path-style-access": "true",
        }


_numbers = itertools.count()


def created_namespace(served: Served) -> str:
    """A new namespace with a unique name."""
    name = f"namespace_{next(_numbers)}"
    with load_catalog("sandur", type="rest", uri=served.url, warehouse="main", **served.pyiceberg_properties) as opened:
        opened.create_namespace(name)
    return name


def server_settings(s3: S3Settings) -> dict[str, str]:
    """The same for the server itself, as environment variables; with what it gives to its clients."""
    keys = {
        "s3_endpoint": s3.endpoint,
        "s3_region": s3.region,
        "s3_access_key_id": s3.access_key_id,
        "s3_secret_access_key": s3.secret_access_key,
    }
    if s3.access == "none":
        return keys
    return keys | {
        "s3_access": s3.access,
        "s3_role_arn": s3.role_arn,
        "s3_sts_endpoint": s3.sts_endpoint,
        "s3_credential_lifetime": s3.credential_lifetime,
    }
