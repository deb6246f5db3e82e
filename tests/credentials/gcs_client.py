"""A client of Google Cloud Storage that has a token and nothing else."""

from typing import TYPE_CHECKING

from obstore.store import GCSStore

from sandur.settings import Settings
from tests.servers.gcs import BUCKET

if TYPE_CHECKING:
    from obstore.store import GCSCredential


def gcs_client(settings: Settings, token: str) -> GCSStore:
    def provide() -> "GCSCredential":
        return {"token": token, "expires_at": None}

    return GCSStore(
        BUCKET,
        credential_provider=provide,
        config={"base_url": settings.gcs.endpoint},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
