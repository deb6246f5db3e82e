"""The objects of the tree as the APIs name them, and requests about them."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from sandur.catalog.security.privileges import SecurableType
from tests.authorization.evaluator import METASTORE, Kind
from tests.authorization.worlds import TREE
from tests.server.unity.client import UNITY

KINDS: Final = {METASTORE: Kind.METASTORE, **{one: kind for one, kind, _ in TREE}}
UNITY_TYPES: Final[Mapping[Kind, SecurableType]] = {
    Kind.METASTORE: "metastore",
    Kind.CATALOG: "catalog",
    Kind.NAMESPACE: "schema",
    Kind.TABLE: "table",
    Kind.VIEW: "table",
    Kind.VOLUME: "volume",
    Kind.FUNCTION: "function",
    Kind.MODEL: "registered_model",
    Kind.EXTERNAL_LOCATION: "external_location",
    Kind.CREDENTIAL: "credential",
}
DELTA_TABLES: Final = frozenset(("main.sales.events",))
DELTA: Final = f"{UNITY}/delta/v1"
LANDING: Final = "s3://bucket/landing"
# The principal that gets a right when a request changes grants.
GRANTEE: Final = "grantee@example.org"
# A request that is denied has one of these statuses.
DENIED: Final = frozenset((401, 403, 404))

Json = dict[str, Any]


@dataclass(frozen=True)
class Sent:
    """One HTTP request."""

    method: str
    path: str
    body: Json | None = None

    async def by(self, client: httpx.AsyncClient, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return await client.request(self.method, self.path, json=self.body, headers=dict(headers or {}))

    def with_names(self, names: Mapping[str, str]) -> "Sent":
        """The same request about other names."""
        body = None if self.body is None else json.loads(renamed(json.dumps(self.body), names))
        return Sent(self.method, renamed(self.path, names), body)


def renamed(text: str, names: Mapping[str, str]) -> str:
    """The text with other names, where they are whole words."""
    for old, new in names.items():
        if old:
            text = re.sub(rf"(?<![A-Za-z]){re.escape(old)}(?![A-Za-z])", new, text)
    return text


@dataclass(frozen=True)
class Name:
    """An id of the tree, as the two APIs name it. Unity Catalog cannot name what is in a nested namespace."""

    id: str

    @property
    def parts(self) -> list[str]:
        return self.id.split(".")

    @property
    def catalog(self) -> str:
        return self.parts[0]

    @property
    def levels(self) -> list[str]:
        return self.parts[1:] if KINDS[self.id] is Kind.NAMESPACE else self.parts[1:-1]

    @property
    def leaf(self) -> str:
        return self.parts[-1]

    @property
    def namespace_path(self) -> str:
        return f"/v1/{self.catalog}/namespaces/{quote(chr(0x1F).join(self.levels), safe='')}"

    @property
    def table_path(self) -> str:
        return f"{self.namespace_path}/tables/{self.leaf}"

    @property
    def view_path(self) -> str:
        return f"{self.namespace_path}/views/{self.leaf}"

    @property
    def is_nested(self) -> bool:
        return len(self.levels) > 1

    @property
    def delta_path(self) -> str:
        return f"{DELTA}/catalogs/{self.catalog}/schemas/{self.levels[0]}"

    @property
    def is_delta(self) -> bool:
        return self.id in DELTA_TABLES

    def in_unity(self) -> Json:
        return {"catalog_name": self.catalog, "schema_name": ".".join(self.levels)}
