"""Azurite, the Azure Blob Storage of the tests; npm installs it; without it the tests are skipped with a reason."""

import base64
import contextlib
import hashlib
import hmac
import shutil
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Final

from sandur.settings import AzureSettings, Settings
from tests.servers.processes import LOOPBACK, free_ports, running

CONTAINER: Final = "sandur"

# The account and key that every emulator of Azure Blob Storage knows; they are public.
ACCOUNT: Final = "devstoreaccount1"
ACCOUNT_KEY: Final = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="

_PROGRAM: Final = Path(__file__).parents[2] / ".tools" / "azurite" / "node_modules" / ".bin" / "azurite-blob"
_API_VERSION: Final = "2021-12-02"


def why_azurite_is_missing() -> str | None:
    """The reason why Azurite cannot run here; None when it can."""
    if shutil.which("node") is None:
        return "Azurite needs Node.js, which is not installed"
    if not _PROGRAM.exists():
        return "Azurite is not installed: run `make test`, which installs it where npm is found"
    return None


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[Settings]:
    """Settings that open `az://sandur/…` on a fresh server, which keeps everything in memory."""
    [port] = free_ports(1)
    endpoint = f"http://{LOOPBACK}:{port}/{ACCOUNT}"
    command: list[str | Path] = [
        _PROGRAM,
        "--blobHost",
        LOOPBACK,
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--skipApiVersionCheck",
        "--disableTelemetry",
        "--silent",
    ]
    with running(command, answers=endpoint, folder=folder):
        _create_container(endpoint)
        yield Settings(azure=AzureSettings(endpoint=endpoint, account_name=ACCOUNT, account_key=ACCOUNT_KEY))


def _create_container(endpoint: str) -> None:
    """Create the container by a request signed with the shared key: obstore has no call for it."""
    date = formatdate(usegmt=True)
    headers = f"x-ms-date:{date}\nx-ms-version:{_API_VERSION}\n"
    # The account appears twice: as the signer, and as the first segment of the emulator's path.
    resource = f"/{ACCOUNT}/{ACCOUNT}/{CONTAINER}\nrestype:container"
    signed = hmac.digest(
        base64.b64decode(ACCOUNT_KEY), f"PUT{chr(10) * 12}{headers}{resource}".encode(), hashlib.sha256
    )
    request = urllib.request.Request(  # noqa: S310 - an address on loopback that we made
        f"{endpoint}/{CONTAINER}?restype=container",
        method="PUT",
        headers={
            "x-ms-date": date,
            "x-ms-version": _API_VERSION,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}",
        },
    )
    with urllib.request.urlopen(request, timeout=30):  # noqa: S310 - likewise
        pass
