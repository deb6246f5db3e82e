"""What Azure needs beyond obstore: deletes that name the version they mean, signed for keys of any spelling."""

import base64
import hashlib
import hmac
import os
from email.utils import formatdate
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from sandur.settings import AzureSettings
from sandur.storage.object_store import Version

if TYPE_CHECKING:
    from sandur.storage.cloud import Request

_API_VERSION: Final = "2023-11-03"

# The names under which obstore looks for them too.
_KEY_VARIABLES: Final = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_SAS_VARIABLES: Final = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")


def azure_deletes(container: str, prefix: str, settings: AzureSettings) -> "AzureDeletes | None":
    """Deletes by an account key or a token; None when the settings and the environment hold neither."""
    account = settings.account_name or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    account_key = settings.account_key or _first(_KEY_VARIABLES)
    sas_token = settings.sas_token or _first(_SAS_VARIABLES)
    endpoint = settings.endpoint or f"https://{account}.blob.core.windows.net"
    if not account_key and not sas_token:
        return None
    base = f"{endpoint.rstrip('/')}/{container}/{quote(prefix, safe='/~') + '/' if prefix else ''}"
    return AzureDeletes(base, account=account, account_key=account_key, sas_token=sas_token)


class AzureDeletes:
    """Builds `DELETE` requests that take effect only on the expected version.

    An address signed by obstore would not do: it signs the encoded path where Azure checks the decoded one, so that
    every key with a `%` is refused.
    """

    def __init__(self, base: str, *, account: str, account_key: str, sas_token: str) -> None:
        self._base = base
        self._account = account
        self._account_key = base64.b64decode(account_key)
        self._sas_token = sas_token.removeprefix("?")

    async def __call__(self, key: str, expected: Version) -> "Request":
        url = self._base + quote(key, safe="/~")
        if not self._account_key:
            return f"{url}?{self._sas_token}", {"If-Match": expected, "x-ms-version": _API_VERSION}
        date = formatdate(usegmt=True)
        signature = self._signature(urlsplit(url).path, date, expected)
        return url, {
            "If-Match": expected,
            "x-ms-date": date,
            "x-ms-version": _API_VERSION,
            "Authorization": f"SharedKey {self._account}:{signature}",
        }

    def _signature(self, path: str, date: str, expected: Version) -> str:
        # The method and eleven standard headers, of which only If-Match, the eighth, is sent.
        standard = ["DELETE", *[""] * 7, expected, *[""] * 3]
        own = [f"x-ms-date:{date}", f"x-ms-version:{_API_VERSION}"]
        text = "\n".join([*standard, *own, f"/{self._account}{path}"])
        return base64.b64encode(hmac.digest(self._account_key, text.encode(), hashlib.sha256)).decode()


def _first(variables: tuple[str, ...]) -> str:
    return next((value for variable in variables if (value := os.environ.get(variable))), "")
