"""What a client must know to reach a server: its address, and where its tables lie."""

from dataclasses import dataclass

from sandur.settings import S3Settings
from tests.server.process import ServerProcess


@dataclass(frozen=True)
class Served:
    """A running server; `s3` is what clients need to read and write its tables, None when they lie in a folder."""

    store: str
    server: ServerProcess
    s3: S3Settings | None = None

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def pyiceberg_properties(self) -> dict[str, str]:
        """What PyIceberg, and what speaks its words, is told beyond the address."""
        if self.s3 is None:
            return {}
        return {
            "s3.endpoint": self.s3.endpoint,
            "s3.region": self.s3.region,
            "s3.access-key-id": self.s3.access_key_id,
            "s3.secret-access-key": self.s3.secret_access_key,
            "s3.path-style-access": "true",
        }


def server_settings(s3: S3Settings) -> dict[str, str]:
    """The same for the server itself, as settings of its environment."""
    return {
        "s3_endpoint": s3.endpoint,
        "s3_region": s3.region,
        "s3_access_key_id": s3.access_key_id,
        "s3_secret_access_key": s3.secret_access_key,
    }
