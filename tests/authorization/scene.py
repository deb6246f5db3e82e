"""The tree of `worlds` in a real catalog, and the HTTP requests of each check."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import httpx

from tests.authorization.evaluator import Check, Kind
from tests.authorization.names import GRANTEE, KINDS, LANDING, Json, Name, Sent
from tests.authorization.requests import creation_of, single_requests
from tests.authorization.worlds import TREE
from tests.server.requests import SCHEMA, create_table, set_properties
from tests.server.unity.client import CONTROL, UNITY
from tests.server.unity.delta_requests import creation


@dataclass(frozen=True)
class Scene:
    """The ids that the catalog gave, by the id of the tree."""

    ids: Mapping[str, str]

    @classmethod
    async def create(cls, client: httpx.AsyncClient) -> "Scene":
        """Create the tree, as a caller that may do everything."""
        existing = {"main"}  # The default catalog.
        grantee = await cls._made(client, Sent("POST", f"{CONTROL}/scim2/Users", {"emails": [{"value": GRANTEE}]}))
        for one in (one for one, _, _ in TREE if one not in existing):
            if Name(one).is_delta:
                await cls._create_delta(client, Name(one))
            else:
                await cls._made(client, creation_of(one))
        version = {"catalog_name": "main", "schema_name": "sales", "model_name": "churn", "source": "test"}
        await cls._made(client, Sent("POST", f"{UNITY}/models/versions", version))
        ids = {"grantee": grantee["id"]}
        for one in ("main.sales.orders", "main.sales.events"):
            table = await cls._made(client, Sent("GET", f"{UNITY}/tables/{one}"))
            ids |= {one: table["table_id"], f"location of {Name(one).leaf}": table["storage_location"]}
        volume = await cls._made(client, Sent("GET", f"{UNITY}/volumes/main.sales.files"))
        return cls({**ids, "main.sales.files": volume["volume_id"]})

    @staticmethod
    async def _made(client: httpx.AsyncClient, sent: Sent) -> Json:
        answer = await sent.by(client)
        assert answer.is_success, (sent, answer.text)
        made: Json = answer.json()
        return made

    @classmethod
    async def _create_delta(cls, client: httpx.AsyncClient, name: Name) -> None:
        stage = await cls._made(client, Sent("POST", f"{name.delta_path}/staging-tables", {"name": name.leaf}))
        await cls._made(client, Sent("POST", f"{name.delta_path}/tables", creation(stage, name.leaf)))

    def requests(self, *checks: Check) -> Iterator[Sent]:
        """The requests that need exactly these checks, in every API that can name their objects."""
        if len(checks) == 1:
            return single_requests(checks[0], self.ids)
        build = COMPOSITE.get(tuple(check.operation for check in checks))
        return build(*(Name(check.object_id) for check in checks)) if build else iter(())


def _purges(table: Name, _same: Name) -> Iterator[Sent]:
    if not table.is_delta:
        yield Sent("DELETE", f"{table.table_path}?purgeRequested=true")


def _registrations(namespace: Name, *_location: Name) -> Iterator[Sent]:
    body = {"name": "created", "metadata-location": f"{LANDING}/created/metadata/00001-a.metadata.json"}
    yield Sent("POST", f"{namespace.namespace_path}/register", body)


def _locations_with(_metastore: Name, credential: Name) -> Iterator[Sent]:
    location = {"name": "created", "url": "s3://other/created", "credential_name": credential.id}
    yield Sent("POST", f"{UNITY}/external-locations", location)


def _table_renames(old: Name, new: Name) -> Iterator[Sent]:
    if old.is_delta and old.levels == new.levels and old.catalog == new.catalog:
        yield Sent("POST", f"{old.delta_path}/tables/{old.leaf}/rename", {"new-name": "renamed"})
    elif not old.is_delta:
        yield from _renames("tables", old, new)


def _renames(kind: str, old: Name, new: Name) -> Iterator[Sent]:
    if old.catalog == new.catalog:
        body = {
            "source": {"namespace": old.levels, "name": old.leaf},
            "destination": {"namespace": new.levels, "name": "renamed"},
        }
        yield Sent("POST", f"/v1/{old.catalog}/{kind}/rename", body)


def _creations_at(name: Name, _location: Name) -> Iterator[Sent]:
    """Tables at a location that the client names."""
    location = f"{LANDING}/created"
    for body in (
        create_table("created", location=location),
        create_table("created", location=location, stage_create=True),
    ):
        yield Sent("POST", f"{name.namespace_path}/tables", body)
    if not name.is_nested:
        external = {"table_type": "EXTERNAL", "data_source_format": "PARQUET", "storage_location": location}
        yield Sent("POST", f"{UNITY}/tables", {**name.in_unity(), "name": "created", "columns": [], **external})


def _namespaces_at(name: Name, _location: Name) -> Iterator[Sent]:
    levels = name.levels if KINDS[name.id] is Kind.NAMESPACE else []
    located = {"namespace": [*levels, "created"], "properties": {"location": f"{LANDING}/created"}}
    yield Sent("POST", f"/v1/{name.catalog}/namespaces", located)
    if not levels:
        schema = {"catalog_name": name.catalog, "name": "created", "storage_root": f"{LANDING}/created"}
        yield Sent("POST", f"{UNITY}/schemas", schema)


def _transactions(*updated: Name, created_in: Name | None = None) -> Iterator[Sent]:
    catalogs = {name.catalog for name in (*updated, *([created_in] if created_in else []))}
    if len(catalogs) > 1 or any(name.is_delta for name in updated):
        return
    changes = [
        {"identifier": {"namespace": name.levels, "name": name.leaf}, **set_properties(changed="yes")}
        for name in updated
    ]
    if created_in:
        changes.append({"identifier": {"namespace": created_in.levels, "name": "created"}, **CREATION})
    yield Sent("POST", f"/v1/{updated[0].catalog}/transactions/commit", {"table-changes": changes})


CREATION: Final[Json] = {
    "requirements": [{"type": "assert-create"}],
    "updates": [
        {"action": "assign-uuid", "uuid": "0190b6a0-0000-7000-8000-000000000001"},
        {"action": "upgrade-format-version", "format-version": 2},
        {"action": "add-schema", "schema": SCHEMA, "last-column-id": 2},
        {"action": "set-current-schema", "schema-id": -1},
        {"action": "add-spec", "spec": {"spec-id": 0, "fields": []}},
        {"action": "set-default-spec", "spec-id": -1},
        {"action": "add-sort-order", "sort-order": {"order-id": 0, "fields": []}},
        {"action": "set-default-sort-order", "sort-order-id": -1},
    ],
}

COMPOSITE: Final[Mapping[tuple[str, ...], Callable[..., Iterator[Sent]]]] = {
    ("drop table", "delete files"): _purges,
    ("drop table", "create table"): _table_renames,
    ("drop view", "create view"): partial(_renames, "views"),
    ("create table", "use location for a table"): _creations_at,
    ("create table", "use location for a table", "read files"): _registrations,
    ("create namespace", "use location for a namespace"): _namespaces_at,
    ("create external location", "use credential"): _locations_with,
    ("update table", "create table"): lambda table, namespace: _transactions(table, created_in=namespace),
    ("update table", "update table"): _transactions,
}
