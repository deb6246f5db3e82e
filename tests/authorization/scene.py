"""The tree of `worlds` in a real catalog, and the HTTP request of each check."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import httpx

from sandur.catalog.privileges import SecurableType
from tests.authorization.evaluator import METASTORE, Check, Kind
from tests.authorization.worlds import TREE
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import CONTROL, UNITY

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
}
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

    def in_unity(self) -> Json:
        return {"catalog_name": self.catalog, "schema_name": ".".join(self.levels)}


def function_named(name: str, where: Name) -> Json:
    function = {
        **where.in_unity(),
        "name": name,
        "input_params": {"parameters": []},
        "data_type": "INT",
        "full_data_type": "INT",
        "routine_body": "EXTERNAL",
        "routine_definition": "return 1",
        "parameter_style": "S",
        "is_deterministic": True,
        "sql_data_access": "NO_SQL",
        "is_null_call": False,
        "security_type": "DEFINER",
        "specific_name": name,
        "properties": "{}",
    }
    return {"function_info": function}


METRICS: Final = {
    "report-type": "scan-report",
    "table-name": "t",
    "snapshot-id": 1,
    "filter": True,
    "schema-id": 0,
    "projected-field-ids": [],
    "projected-field-names": [],
    "metrics": {},
}


def creation_of(object_id: str) -> Sent:
    """The request that creates an object of the tree."""
    name = Name(object_id)
    location = {"name": object_id, "url": f"s3://bucket/{object_id}", "credential_name": "cloud"}
    creations: dict[Kind, tuple[str, Json]] = {
        Kind.CATALOG: (f"{UNITY}/catalogs", {"name": object_id}),
        Kind.NAMESPACE: (f"/v1/{name.catalog}/namespaces", {"namespace": name.levels}),
        Kind.TABLE: (f"{name.namespace_path}/tables", create_table(name.leaf)),
        Kind.VIEW: (f"{name.namespace_path}/views", create_view(name.leaf)),
        Kind.VOLUME: (f"{UNITY}/volumes", {**name.in_unity(), "name": name.leaf, "volume_type": "MANAGED"}),
        Kind.FUNCTION: (f"{UNITY}/functions", function_named(name.leaf, name)),
        Kind.MODEL: (f"{UNITY}/models", {**name.in_unity(), "name": name.leaf}),
        Kind.EXTERNAL_LOCATION: (f"{UNITY}/external-locations", location),
    }
    path, body = creations[KINDS[object_id]]
    return Sent("POST", path, body)


@dataclass(frozen=True)
class Scene:
    """The ids that the catalog gave, by the id of the tree."""

    ids: Mapping[str, str]

    @classmethod
    async def create(cls, client: httpx.AsyncClient) -> "Scene":
        """Create the tree, as a caller that may do everything."""
        credential = Sent("POST", f"{UNITY}/credentials", {"name": "cloud"})
        existing = {"main"}  # The default catalog.
        grantee = Sent("POST", f"{CONTROL}/scim2/Users", {"emails": [{"value": GRANTEE}]})
        for sent in (grantee, credential, *(creation_of(one) for one, _, _ in TREE if one not in existing)):
            answer = await sent.by(client)
            assert answer.is_success, (sent, answer.text)
        version = {"catalog_name": "main", "schema_name": "sales", "model_name": "churn", "source": "test"}
        assert (await client.post(f"{UNITY}/models/versions", json=version)).is_success
        table, volume = [
            (await client.get(UNITY + path)).json()
            for path in ("/tables/main.sales.orders", "/volumes/main.sales.files")
        ]
        return cls({"main.sales.orders": table["table_id"], "main.sales.files": volume["volume_id"]})

    def request(self, *checks: Check) -> Sent | None:
        """The request that needs these checks; None if no route needs exactly them, or the API cannot name them."""
        if len(checks) == 1:
            build = _SINGLE.get(checks[0].operation)
            return build(self, Name(checks[0].object_id)) if build else None
        match [check.operation for check in checks]:
            case ["drop table", "delete files"]:
                return Sent("DELETE", f"{Name(checks[0].object_id).table_path}?purgeRequested=true")
            case ["drop table", "create table"]:
                return _rename("tables", *checks)
            case ["drop view", "create view"]:
                return _rename("views", *checks)
            case operations if set(operations) == {"update table"}:
                return _transaction(*checks)
        return None


def _rename(kind: str, source: Check, target: Check) -> Sent | None:
    old, new = Name(source.object_id), Name(target.object_id)
    if old.catalog != new.catalog:
        return None
    body = {
        "source": {"namespace": old.levels, "name": old.leaf},
        "destination": {"namespace": new.levels, "name": "renamed"},
    }
    return Sent("POST", f"/v1/{old.catalog}/{kind}/rename", body)


def _transaction(*checks: Check) -> Sent | None:
    names = [Name(check.object_id) for check in checks]
    if len({name.catalog for name in names}) > 1:
        return None
    changes = [
        {"identifier": {"namespace": name.levels, "name": name.leaf}, **set_properties(changed="yes")} for name in names
    ]
    return Sent("POST", f"/v1/{names[0].catalog}/transactions/commit", {"table-changes": changes})


def _list(_scene: Scene, name: Name) -> Sent:
    match KINDS[name.id]:
        case Kind.METASTORE:
            return Sent("GET", f"{UNITY}/catalogs")
        case Kind.CATALOG:
            return Sent("GET", f"/v1/{name.catalog}/namespaces")
        case _:
            return Sent("GET", f"{name.namespace_path}/tables")


def _create_namespace(_scene: Scene, name: Name) -> Sent:
    levels = [*(name.levels if KINDS[name.id] is Kind.NAMESPACE else []), "created"]
    return Sent("POST", f"/v1/{name.catalog}/namespaces", {"namespace": levels})


def _temporary(kind: str, operation: str) -> Callable[[Scene, Name], Sent | None]:
    """Credentials for an object that Unity Catalog can name."""

    def build(scene: Scene, name: Name) -> Sent | None:
        if kind == "model-version":
            body = {**name.in_unity(), "model_name": name.leaf, "version": 1}
        elif kind == "path":
            body = {"url": f"s3://bucket/{name.id}/file"}
        elif name.id in scene.ids:
            body = {f"{kind}_id": scene.ids[name.id]}
        else:
            return None
        return Sent("POST", f"{UNITY}/temporary-{kind}-credentials", {**body, "operation": operation})

    return build


def _grants(method: str, body: Json | None = None) -> Callable[[Scene, Name], Sent | None]:
    def build(_scene: Scene, name: Name) -> Sent | None:
        kind = KINDS[name.id]
        if kind in {Kind.METASTORE, Kind.CATALOG, Kind.EXTERNAL_LOCATION}:
            return Sent(method, f"{UNITY}/permissions/{UNITY_TYPES[kind]}/{name.id}", body)
        return None if name.is_nested else Sent(method, f"{UNITY}/permissions/{UNITY_TYPES[kind]}/{name.id}", body)

    return build


def _unity(method: str, folder: str, body: Json | None = None) -> Callable[[Scene, Name], Sent | None]:
    """A request of Unity Catalog on an object that it names by its full name."""
    return lambda _scene, name: Sent(method, f"{UNITY}/{folder}/{name.id}", body)


def _unity_creation(folder: str, body: Json) -> Callable[[Scene, Name], Sent | None]:
    return lambda _scene, name: (
        None if name.is_nested else Sent("POST", f"{UNITY}/{folder}", {**name.in_unity(), "name": "created", **body})
    )


_SINGLE: Final[Mapping[str, Callable[[Scene, Name], Sent | None]]] = {
    "config": lambda _scene, name: Sent("GET", f"/v1/config?warehouse={name.catalog}"),
    "list": _list,
    "load catalog": _unity("GET", "catalogs"),
    "load namespace": lambda _scene, name: Sent("GET", name.namespace_path),
    "create catalog": lambda _scene, _name: Sent("POST", f"{UNITY}/catalogs", {"name": "created"}),
    "create namespace": _create_namespace,
    "update catalog": _unity("PATCH", "catalogs", {"comment": "changed"}),
    "update namespace": lambda _scene, name: Sent(
        "POST", f"{name.namespace_path}/properties", {"removals": [], "updates": {"changed": "yes"}}
    ),
    "drop catalog": _unity("DELETE", "catalogs"),
    "drop namespace": lambda _scene, name: Sent("DELETE", name.namespace_path),
    "create table": lambda _scene, name: Sent("POST", f"{name.namespace_path}/tables", create_table("created")),
    "load table": lambda _scene, name: Sent("GET", name.table_path),
    "plan scan": lambda _scene, name: Sent("POST", f"{name.table_path}/plan", {}),
    "read table": _temporary("table", "READ"),
    "write table": _temporary("table", "READ_WRITE"),
    "report metrics": lambda _scene, name: Sent("POST", f"{name.table_path}/metrics", METRICS),
    "update table": lambda _scene, name: Sent("POST", name.table_path, set_properties(changed="yes")),
    "drop table": lambda _scene, name: Sent("DELETE", name.table_path),
    "create view": lambda _scene, name: Sent("POST", f"{name.namespace_path}/views", create_view("created")),
    "load view": lambda _scene, name: Sent("GET", name.view_path),
    "replace view": lambda _scene, name: Sent("POST", name.view_path, set_properties(changed="yes")),
    "drop view": lambda _scene, name: Sent("DELETE", name.view_path),
    "create function": lambda _scene, name: (
        None if name.is_nested else Sent("POST", f"{UNITY}/functions", function_named("created", name))
    ),
    "load function": _unity("GET", "functions"),
    "drop function": _unity("DELETE", "functions"),
    "create volume": _unity_creation("volumes", {"volume_type": "MANAGED"}),
    "load volume": _unity("GET", "volumes"),
    "read volume": _temporary("volume", "READ_VOLUME"),
    "write volume": _temporary("volume", "WRITE_VOLUME"),
    "update volume": _unity("PATCH", "volumes", {"comment": "changed"}),
    "drop volume": _unity("DELETE", "volumes"),
    "create model": _unity_creation("models", {}),
    "load model": _unity("GET", "models"),
    "read model": _temporary("model-version", "READ_MODEL_VERSION"),
    "write model": _temporary("model-version", "READ_WRITE_MODEL_VERSION"),
    "update model": _unity("PATCH", "models", {"comment": "changed"}),
    "drop model": _unity("DELETE", "models"),
    "load external location": _unity("GET", "external-locations"),
    "read files": _temporary("path", "PATH_READ"),
    "write files": _temporary("path", "PATH_READ_WRITE"),
    "update external location": _unity("PATCH", "external-locations", {"comment": "changed"}),
    "drop external location": _unity("DELETE", "external-locations"),
    "read grants": _grants("GET"),
    "change grants": _grants("PATCH", {"changes": [{"principal": GRANTEE, "add": ["SELECT"], "remove": []}]}),
}
