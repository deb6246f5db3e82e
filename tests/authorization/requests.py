"""The HTTP requests that need one check, in every API that can name the object."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.authorization.evaluator import Check, Kind
from tests.authorization.names import DELTA, GRANTEE, KINDS, UNITY_TYPES, Json, Name, Sent
from tests.server.logins import PRINCIPALS
from tests.server.requests import create_table, create_view, set_properties
from tests.server.unity.client import CONTROL, UNITY
from tests.server.unity.delta_requests import TIME_MS, update

Ids = Mapping[str, str]
Build = Callable[[Ids, Name], Sent | None]


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
        Kind.CREDENTIAL: (f"{UNITY}/credentials", {"name": object_id}),
    }
    path, body = creations[KINDS[object_id]]
    return Sent("POST", path, body)


def single_requests(check: Check, ids: Ids) -> Iterator[Sent]:
    """The requests that need only this check. `ids` are those that the catalog gave, by the id of the tree."""
    for build in REQUESTS.get(check.operation, ()):
        if sent := build(ids, Name(check.object_id)):
            yield sent


# Builders: None if the API cannot name the object.


def _namespace(method: str, suffix: str = "", body: Json | None = None) -> Build:
    return lambda _ids, name: Sent(method, name.namespace_path + suffix, body)


def _table(method: str, suffix: str = "", body: Json | None = None) -> Build:
    return lambda _ids, name: None if name.is_delta else Sent(method, name.table_path + suffix, body)


def _view(method: str, body: Json | None = None) -> Build:
    return lambda _ids, name: Sent(method, name.view_path, body)


def _delta(method: str, suffix: str = "") -> Build:
    return lambda _ids, name: Sent(method, f"{name.delta_path}/tables/{name.leaf}{suffix}") if name.is_delta else None


def _delta_update(ids: Ids, name: Name) -> Sent | None:
    if not name.is_delta:
        return None
    change = update(ids[name.id], {"action": "set-properties", "updates": {"changed": "yes"}})
    return Sent("POST", f"{name.delta_path}/tables/{name.leaf}", change)


def _delta_metrics(ids: Ids, name: Name) -> Sent | None:
    if not name.is_delta:
        return None
    return Sent("POST", f"{name.delta_path}/tables/{name.leaf}/metrics", {"table-id": ids[name.id], "report": {}})


def _get_commits(ids: Ids, name: Name) -> Sent | None:
    body = {"table_id": ids.get(name.id), "start_version": 0}
    return Sent("GET", f"{UNITY}/delta/preview/commits", body) if name.is_delta else None


def _post_commit(ids: Ids, name: Name) -> Sent | None:
    if not name.is_delta:
        return None
    file = {"version": 1, "timestamp": TIME_MS, "file_name": "1.json", "file_size": 1}
    info = {**file, "file_modification_timestamp": TIME_MS}
    body = {"table_id": ids[name.id], "table_uri": ids["location of events"], "commit_info": info}
    return Sent("POST", f"{UNITY}/delta/preview/commits", body)


def _signed(method: str) -> Json:
    """A request to be signed; the tables of the worlds are not in a bucket, so an allowed one is unsupported."""
    return {"method": method, "uri": "http://127.0.0.1/bucket/file", "region": "us-east-1", "headers": {}}


def _stage(ids: Ids, name: Name) -> Sent | None:
    del ids
    return None if name.is_nested else Sent("POST", f"{name.delta_path}/staging-tables", {"name": "created"})


def _unity(method: str, folder: str, body: Json | None = None) -> Build:
    """A request of Unity Catalog on an object that it names by its full name."""
    return lambda _ids, name: None if name.is_nested else Sent(method, f"{UNITY}/{folder}/{name.id}", body)


def _in_unity(folder: str, body: Json) -> Build:
    return lambda _ids, name: (
        None if name.is_nested else Sent("POST", f"{UNITY}/{folder}", {**name.in_unity(), "name": "created", **body})
    )


def _version(method: str, suffix: str = "", body: Json | None = None) -> Build:
    return lambda _ids, name: Sent(method, f"{UNITY}/models/{name.id}/versions{suffix}", body)


def _finalize(ids: Ids, name: Name) -> Sent:
    del ids
    return Sent("PATCH", f"{UNITY}/models/{name.id}/versions/1/finalize", {"full_name": name.id, "version": 1})


def _create_version(ids: Ids, name: Name) -> Sent:
    del ids
    return Sent("POST", f"{UNITY}/models/versions", {**name.in_unity(), "model_name": name.leaf, "source": "test"})


def _create_namespace(ids: Ids, name: Name) -> Sent:
    del ids
    levels = [*(name.levels if KINDS[name.id] is Kind.NAMESPACE else []), "created"]
    return Sent("POST", f"/v1/{name.catalog}/namespaces", {"namespace": levels})


def _create_schema(ids: Ids, name: Name) -> Sent | None:
    del ids
    body = {"catalog_name": name.catalog, "name": "created"}
    return Sent("POST", f"{UNITY}/schemas", body) if KINDS[name.id] is Kind.CATALOG else None


def _create_function(ids: Ids, name: Name) -> Sent | None:
    del ids
    return None if name.is_nested else Sent("POST", f"{UNITY}/functions", function_named("created", name))


def _list(*paths: tuple[Kind, str]) -> tuple[Build, ...]:
    """Lists; `{c}` and `{s}` in a path are the catalog and the schema, `{n}` is the path of the namespace."""

    def of(kind: Kind, path: str) -> Build:
        def build(_ids: Ids, name: Name) -> Sent | None:
            if KINDS[name.id] is not kind or (name.is_nested and "{s}" in path):
                return None
            levels = ".".join(name.levels) if kind is Kind.NAMESPACE else ""
            where = name.namespace_path if kind is Kind.NAMESPACE else ""
            return Sent("GET", path.format(c=name.catalog, s=levels, n=where))

        return build

    return tuple(of(kind, path) for kind, path in paths)


def _temporary(kind: str, operation: str) -> Build:
    """Credentials for an object that Unity Catalog can name."""

    def build(ids: Ids, name: Name) -> Sent | None:
        if kind == "model-version":
            body = {**name.in_unity(), "model_name": name.leaf, "version": 1}
        elif kind == "path":
            body = {"url": f"s3://bucket/{name.id}/file"}
        elif name.id in ids:
            body = {f"{kind}_id": ids[name.id]}
        else:
            return None
        return Sent("POST", f"{UNITY}/temporary-{kind}-credentials", {**body, "operation": operation})

    return build


def _path(operation: str) -> Build:
    query = f"operation={operation}&location=s3://bucket"
    return lambda _ids, name: Sent("GET", f"{DELTA}/temporary-path-credentials?{query}/{name.id}/file")


def _grants(method: str, body: Json | None = None) -> Build:
    return lambda _ids, name: (
        None if name.is_nested else Sent(method, f"{UNITY}/permissions/{UNITY_TYPES[KINDS[name.id]]}/{name.id}", body)
    )


def _user(method: str, body: Json | None = None) -> Build:
    return lambda ids, _name: Sent(method, f"{CONTROL}/scim2/Users/{ids['grantee']}", body)


def _plain(method: str, path: str, body: Json | None = None) -> Build:
    return lambda _ids, _name: Sent(method, path, body)


_SCHEMA: Final = "catalog_name={c}&schema_name={s}"
_NEW_USER: Final = {"emails": [{"value": "new@example.org"}]}
_CHANGE: Final = {"changes": [{"principal": GRANTEE, "add": ["SELECT"], "remove": []}]}
_PROPERTIES: Final = {"removals": [], "updates": {"changed": "yes"}}
_COMMENT: Final = {"comment": "changed"}

REQUESTS: Final[Mapping[str, tuple[Build, ...]]] = {
    "config": (
        lambda _ids, name: Sent("GET", f"/v1/config?warehouse={name.catalog}"),
        lambda _ids, name: Sent("GET", f"{DELTA}/config?catalog={name.catalog}&protocol-versions=1.0"),
    ),
    "list": _list(
        (Kind.METASTORE, f"{UNITY}/catalogs"),
        (Kind.METASTORE, f"{UNITY}/external-locations"),
        (Kind.METASTORE, f"{UNITY}/credentials"),
        (Kind.CATALOG, "/v1/{c}/namespaces"),
        (Kind.CATALOG, f"{UNITY}/schemas?catalog_name={{c}}"),
        (Kind.NAMESPACE, "{n}/tables"),
        (Kind.NAMESPACE, "{n}/views"),
        (Kind.NAMESPACE, "{n}/functions"),
        (Kind.NAMESPACE, f"{UNITY}/tables?{_SCHEMA}"),
        (Kind.NAMESPACE, f"{UNITY}/volumes?{_SCHEMA}"),
        (Kind.NAMESPACE, f"{UNITY}/functions?{_SCHEMA}"),
        (Kind.NAMESPACE, f"{UNITY}/models?{_SCHEMA}"),
    ),
    "load catalog": (_unity("GET", "catalogs"),),
    "load namespace": (_namespace("GET"), _namespace("HEAD"), _unity("GET", "schemas")),
    "create catalog": (_plain("POST", f"{UNITY}/catalogs", {"name": "created"}),),
    "create namespace": (_create_namespace, _create_schema),
    "update catalog": (_unity("PATCH", "catalogs", _COMMENT),),
    "update namespace": (_namespace("POST", "/properties", _PROPERTIES), _unity("PATCH", "schemas", _COMMENT)),
    "drop catalog": (_unity("DELETE", "catalogs"),),
    "drop namespace": (_namespace("DELETE"), _unity("DELETE", "schemas")),
    "create table": (
        _namespace("POST", "/tables", create_table("created")),
        _namespace("POST", "/tables", create_table("created", stage_create=True)),
        _stage,
        _in_unity("staging-tables", {}),
    ),
    "load table": (
        *(_table("GET", suffix) for suffix in ("", "/schemas", "/partition-specs", "/snapshots")),
        _table("HEAD"),
        _unity("GET", "tables"),
        _delta("GET"),
        _delta("HEAD"),
        _get_commits,
    ),
    "plan scan": (_table("POST", "/plan", {}),),
    "read table": (
        _table("GET", "/credentials"),
        _table("POST", "/sign", _signed("GET")),
        _temporary("table", "READ"),
        _delta("GET", "/credentials?operation=READ"),
    ),
    "write table": (
        _table("POST", "/sign", _signed("PUT")),
        _temporary("table", "READ_WRITE"),
        _delta("GET", "/credentials?operation=READ_WRITE"),
    ),
    "report metrics": (_table("POST", "/metrics", METRICS), _delta_metrics),
    "update table": (_table("POST", "", set_properties(changed="yes")), _delta_update, _post_commit),
    "drop table": (_table("DELETE"), _table("POST", "/unregister"), _unity("DELETE", "tables"), _delta("DELETE")),
    "create view": (_namespace("POST", "/views", create_view("created")),),
    "load view": (_view("GET"), _view("HEAD"), _unity("GET", "tables")),
    "replace view": (_view("POST", set_properties(changed="yes")),),
    "drop view": (_view("DELETE"), _unity("DELETE", "tables")),
    "create function": (_create_function,),
    "load function": (
        _unity("GET", "functions"),
        lambda _ids, name: Sent("GET", f"{name.namespace_path}/functions/{name.leaf}"),
    ),
    "drop function": (_unity("DELETE", "functions"),),
    "create volume": (_in_unity("volumes", {"volume_type": "MANAGED"}),),
    "load volume": (_unity("GET", "volumes"),),
    "read volume": (_temporary("volume", "READ_VOLUME"),),
    "write volume": (_temporary("volume", "WRITE_VOLUME"),),
    "update volume": (_unity("PATCH", "volumes", _COMMENT),),
    "drop volume": (_unity("DELETE", "volumes"),),
    "create model": (_in_unity("models", {}),),
    "load model": (_unity("GET", "models"), _version("GET"), _version("GET", "/1")),
    "read model": (_temporary("model-version", "READ_MODEL_VERSION"),),
    "write model": (_temporary("model-version", "READ_WRITE_MODEL_VERSION"),),
    "update model": (
        _unity("PATCH", "models", _COMMENT),
        _version("PATCH", "/1", _COMMENT),
        _version("DELETE", "/1"),
        _finalize,
        _create_version,
    ),
    "drop model": (
        _unity("DELETE", "models"),
        lambda _ids, name: Sent("DELETE", f"{UNITY}/models/{name.id}?force=true"),
    ),
    "create credential": (_plain("POST", f"{UNITY}/credentials", {"name": "created"}),),
    "load credential": (_unity("GET", "credentials"),),
    "update credential": (_unity("PATCH", "credentials", _COMMENT),),
    "drop credential": (_unity("DELETE", "credentials"),),
    "load external location": (_unity("GET", "external-locations"),),
    "read files": (_temporary("path", "PATH_READ"), _path("PATH_READ")),
    "write files": (_temporary("path", "PATH_READ_WRITE"), _path("PATH_READ_WRITE")),
    "use location for a table": (_temporary("path", "PATH_CREATE_TABLE"), _path("PATH_CREATE_TABLE")),
    "update external location": (_unity("PATCH", "external-locations", _COMMENT),),
    "drop external location": (_unity("DELETE", "external-locations"),),
    "manage principals": (
        _plain("GET", PRINCIPALS),
        _plain("POST", PRINCIPALS, {"name": "created"}),
        _plain("GET", f"{PRINCIPALS}/root"),
        _plain("PATCH", f"{PRINCIPALS}/root", {"disabled": True}),
        _plain("PUT", f"{PRINCIPALS}/root/groups", {"groups": ["created"]}),
        _plain("POST", f"{PRINCIPALS}/root/api-keys", {}),
        _plain("POST", f"{PRINCIPALS}/root/revoke-tokens", {}),
        _plain("GET", "/api/sandur/v1/audit"),
        _plain("GET", "/api/sandur/v1/stages"),
        _plain("POST", f"{CONTROL}/scim2/Users", _NEW_USER),
        _plain("GET", f"{CONTROL}/scim2/Users"),
        _user("GET"),
        _user("PUT", {"displayName": "changed"}),
        _user("DELETE"),
    ),
    "read grants": (_grants("GET"),),
    "change grants": (_grants("PATCH", _CHANGE),),
}
