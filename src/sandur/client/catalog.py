"""The catalog as the command line uses it: one method per action, over the server's APIs.

Every change has an idempotency key. If its answer is lost, it is sent again with the same key, which learns the outcome
and never applies it twice.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from sandur.client.sessions import API, Session
from sandur.clock import Clock
from sandur.errors import BadRequest, NotFound, OutcomeUnknown, Unavailable

UNITY: Final = "/api/2.1/unity-catalog"
_DELTA: Final = f"{UNITY}/delta/v1"
_PAGE_SIZE: Final = 1_000
_PAGES_MAX: Final = 10_000
_TRIES_MAX: Final = 3
_RETRY_SECONDS: Final = 0.5

Json = dict[str, Any]


class Name(NamedTuple):
    """A name by its parts: a catalog, a namespace of it, or an object in a namespace."""

    parts: tuple[str, ...]

    @property
    def catalog(self) -> str:
        return self.parts[0]

    @property
    def levels(self) -> tuple[str, ...]:
        """The levels of the namespace that holds the object."""
        return self.parts[1:-1]

    @property
    def leaf(self) -> str:
        return self.parts[-1]

    @property
    def parent(self) -> "Name":
        return Name(self.parts[:-1])

    @property
    def plain(self) -> str:
        """The full name in the APIs that join the parts by dots."""
        return ".".join(self.parts)

    def child(self, name: str) -> "Name":
        return Name((*self.parts, name))


def path_of(*segments: str) -> str:
    return "/".join(quote(segment, safe="") for segment in segments)


def levels_path(levels: Sequence[str]) -> str:
    """The levels of a namespace as one segment of a path."""
    return "%1F".join(quote(level, safe="") for level in levels)


class CatalogClient:
    """The catalog behind a session: of a server, or on a store."""

    def __init__(self, session: Session, clock: Clock) -> None:
        self.session = session
        self._clock = clock

    async def get(self, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
        return msgspec.json.decode(await self.session.request("GET", path, query=query or None))

    async def change(self, method: str, path: str, body: object = None, query: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - JSON
        """Make a change once, and return its answer; None if it has none.

        Raises OutcomeUnknown if it stays unknown whether the change was made.
        """
        key = self._clock.new_id()
        for attempt in range(_TRIES_MAX):
            try:
                answer = await self.session.request(method, path, body=body, query=query, key=key)
            except (OutcomeUnknown, Unavailable):
                if attempt == _TRIES_MAX - 1:
                    raise
                await self._clock.sleep(_RETRY_SECONDS * 2**attempt)
            else:
                return msgspec.json.decode(answer) if answer else None
        raise AssertionError("the last attempt returns or raises")

    # What people browse.

    async def entries(
        self, within: Name | None, *, collection: str = "names", with_columns: bool = False
    ) -> AsyncIterator[Json]:
        """What is in the metastore (None), a catalog or a namespace, page by page."""
        path = f"{API}/contents" if within is None else f"{API}/contents/{_container_path(within)}"
        query = {"collection": collection, "page_size": str(_PAGE_SIZE)}
        if with_columns:
            query["columns"] = "true"
        for _ in range(_PAGES_MAX):
            page = await self.get(path, **query)
            for entry in page["entries"]:
                yield entry
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    async def walk(self, within: Name | None, *, with_columns: bool = False) -> AsyncIterator[tuple[Name, Json]]:
        """Everything below a catalog or namespace, or everywhere, parents first.

        What disappears meanwhile is left out.
        """
        pending = [within]
        while pending:
            container = pending.pop()
            collections = ("names", "namespaces") if container and len(container.parts) > 1 else ("names",)
            children: list[Name] = []
            for collection in collections:
                try:
                    async for entry in self.entries(container, collection=collection, with_columns=with_columns):
                        name = container.child(entry["name"]) if container else Name((entry["name"],))
                        yield name, entry
                        if entry["kind"] in {"catalog", "namespace"}:
                            children.append(name)
                except NotFound:
                    if container == within:
                        raise
            pending += reversed(children)

    async def describe(self, name: Name) -> Json:
        """A catalog, a namespace or an object. A name of three parts or more may be an object or a namespace."""
        try:
            found: Json = await self.get(f"{API}/objects/{object_path(name)}")
        except NotFound as missing:
            if len(name.parts) <= 2:  # noqa: PLR2004 - a catalog or a namespace of one level
                raise
            try:
                found = await self.get(f"{API}/objects/{_container_path(name)}")
            except NotFound:
                raise missing from None
        return found

    async def history(self, name: Name, limit: int) -> list[Json]:
        found = await self.get(f"{API}/objects/{object_path(name)}/history", limit=str(limit))
        versions: list[Json] = found["versions"]
        return versions

    async def changes(self, name: Name, before: int | None, after: int | None) -> Json:
        query = {key: str(value) for key, value in (("from", before), ("to", after)) if value is not None}
        found: Json = await self.get(f"{API}/objects/{object_path(name)}/changes", **query)
        return found

    async def preview(self, tables: Sequence[Name], sql: str | None, limit: int) -> Json:
        """Rows of tables. It changes nothing, so it needs no key."""
        body = {"tables": [list(name.parts) for name in tables], "sql": sql, "limit": limit}
        found: Json = msgspec.json.decode(await self.session.request("POST", f"{API}/preview", body=body))
        return found

    async def dropped(self, within: Name) -> AsyncIterator[Json]:
        """What was dropped in a catalog or a namespace and can be brought back, page by page."""
        query = {"catalog": within.catalog, "page_size": str(_PAGE_SIZE)}
        if len(within.parts) > 1:
            query["namespace"] = ".".join(within.parts[1:])
        for _ in range(_PAGES_MAX):
            page = await self.get(f"{API}/dropped", **query)
            for entry in page["dropped"]:
                yield entry
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    async def undrop(self, kind: str, name: Name, *, uuid: str | None, new: Name | None) -> Json:
        body = {"uuid": uuid, "new_name": _dotted(new) if new else None}
        made: Json = await self.change("POST", f"{API}/undrop/{kind}/{path_of(_dotted(name))}", body)
        return made

    async def jobs(self) -> Json:
        found: Json = await self.get(f"{API}/jobs")
        return found

    # Containers.

    async def create_catalog(
        self, name: Name, *, root: str | None, comment: str | None, properties: Mapping[str, str]
    ) -> Json:
        body = {"name": name.catalog, "storage_root": root, "comment": comment, "properties": dict(properties)}
        made: Json = await self.change("POST", f"{UNITY}/catalogs", {k: v for k, v in body.items() if v is not None})
        return made

    async def update_catalog(self, name: Name, **fields: object) -> None:
        await self.change("PATCH", f"{UNITY}/catalogs/{path_of(name.catalog)}", fields)

    async def create_namespace(self, name: Name, properties: Mapping[str, str]) -> None:
        body = {"namespace": name.parts[1:], "properties": dict(properties)}
        await self.change("POST", f"/v1/{path_of(name.catalog)}/namespaces", body)

    async def update_namespace(self, name: Name, updates: Mapping[str, str], removals: Sequence[str]) -> None:
        body = {"updates": dict(updates), "removals": list(removals)}
        await self.change("POST", f"{_namespace_path(name)}/properties", body)

    async def drop_container(self, name: Name, *, cascade: bool) -> None:
        query = {"force": "true"} if cascade else None
        if len(name.parts) == 1:
            await self.change("DELETE", f"{UNITY}/catalogs/{path_of(name.catalog)}", query=query)
        elif cascade:
            await self.change("DELETE", f"{UNITY}/schemas/{path_of(_dotted(name))}", query=query)
        else:
            await self.change("DELETE", _namespace_path(name))

    # Tables and views.

    async def define_table(self, name: Name, definition: Mapping[str, object]) -> Json:
        path = f"{API}/tables/{path_of(name.catalog)}/{levels_path(name.levels)}"
        made: Json = await self.change("POST", path, {"name": name.leaf, **definition})
        return made

    async def create_iceberg_table(self, name: Name, body: Mapping[str, object]) -> None:
        await self.change("POST", f"{_namespace_path(name.parent)}/tables", {"name": name.leaf, **body})

    async def load_table(self, name: Name) -> Json:
        """The metadata of an Iceberg table."""
        return (await self.load_table_answer(name))["metadata"]  # type: ignore[no-any-return] # JSON

    async def load_table_answer(self, name: Name) -> Json:
        """An Iceberg table with the location of its metadata file."""
        found: Json = await self.get(_named_path(name, "tables"), snapshots="refs")
        return found

    async def commit(
        self, name: Name, updates: Sequence[Mapping[str, object]], requirements: Sequence[Mapping[str, object]]
    ) -> None:
        body = {"requirements": list(requirements), "updates": list(updates)}
        await self.change("POST", _named_path(name, "tables"), body)

    async def update_delta(self, name: Name, table_id: str, updates: Sequence[Mapping[str, object]]) -> None:
        body = {"requirements": [{"type": "assert-table-uuid", "uuid": table_id}], "updates": list(updates)}
        await self.change("POST", _delta_path(name), body)

    async def preview_restore(self, name: Name, version: int) -> Json:
        """What a restore of a Delta table would do."""
        found: Json = await self.get(f"{API}/objects/{object_path(name)}/restore", version=str(version))
        return found

    async def restore(self, name: Name, version: int, expected_version: int) -> Json:
        body = {"version": version, "expected_version": expected_version}
        made: Json = await self.change("POST", f"{API}/objects/{object_path(name)}/restore", body)
        return made

    async def register(self, name: Name, location: str, *, overwrite: bool) -> None:
        body = {"name": name.leaf, "metadata-location": location, "overwrite": overwrite}
        await self.change("POST", f"{_namespace_path(name.parent)}/register", body)

    async def load_view(self, name: Name) -> Json:
        found: Json = await self.get(_named_path(name, "views"))
        return found["metadata"]  # type: ignore[no-any-return] # JSON

    async def create_view(self, name: Name, body: Mapping[str, object]) -> Json:
        made: Json = await self.change("POST", f"{_namespace_path(name.parent)}/views", {"name": name.leaf, **body})
        return made

    async def replace_view(self, name: Name, view_id: str, updates: Sequence[Mapping[str, object]]) -> None:
        requirements = [{"type": "assert-view-uuid", "uuid": view_id}]
        await self.change("POST", _named_path(name, "views"), {"requirements": requirements, "updates": list(updates)})

    async def drop(self, name: Name, found: Mapping[str, Any], *, purge: bool) -> None:
        """Drop the object that was found under the name."""
        kind, format_ = found["kind"], found.get("format", "")
        if kind in {"table", "view"} and format_ == "iceberg":
            query = {"purgeRequested": "true"} if purge else None
            await self.change("DELETE", _named_path(name, f"{kind}s"), query=query)
        elif kind == "table":
            await self.change("DELETE", _delta_path(name))
        else:
            collection = {"view": "tables"}.get(kind, f"{kind}s")
            await self.change("DELETE", f"{UNITY}/{collection}/{path_of(_dotted(name))}")

    async def rename(self, name: Name, found: Mapping[str, Any], new: Name) -> None:
        """Rename the object that was found under the name."""
        kind, format_ = found["kind"], found.get("format", "")
        if kind in {"catalog", "namespace"}:
            if new.parts[:-1] != name.parts[:-1]:
                raise BadRequest(f"{name.plain}: a {kind} keeps its parent; only its own name can change")
            folder = "catalogs" if kind == "catalog" else "schemas"
            await self.change("PATCH", f"{UNITY}/{folder}/{path_of('.'.join(name.parts))}", {"new_name": new.parts[-1]})
            return
        if new.catalog != name.catalog:
            raise BadRequest(f"{name.plain}: a rename stays in its catalog; {new.catalog} is another one")
        if kind in {"table", "view"} and format_ == "iceberg":
            source = {"namespace": name.levels, "name": name.leaf}
            body = {"source": source, "destination": {"namespace": new.levels, "name": new.leaf}}
            await self.change("POST", f"/v1/{path_of(name.catalog)}/{kind}s/rename", body)
            return
        if new.parent != name.parent:
            raise BadRequest(f"{name.plain}: only Iceberg tables and views move to another namespace")
        if kind in {"table", "view"}:
            await self.change("POST", f"{_delta_path(name)}/rename", {"new-name": new.leaf})
        elif kind in {"volume", "model"}:
            await self.change("PATCH", f"{UNITY}/{kind}s/{path_of(_dotted(name))}", {"new_name": new.leaf})
        else:
            raise BadRequest(f"{name.plain}: a {kind} cannot be renamed; create a new one and drop this one")

    # What only Unity Catalog's API has.

    async def create_unity(self, kind: str, name: Name, fields: Mapping[str, object]) -> Json:
        """Create a volume, a function or a model."""
        body = {"catalog_name": name.catalog, "schema_name": ".".join(name.levels), "name": name.leaf, **fields}
        sent = {"function_info": body} if kind == "function" else body
        made: Json = await self.change("POST", f"{UNITY}/{kind}s", sent)
        return made

    async def load_unity_table(self, name: Name) -> Json:
        """A table of any format in the form of Unity Catalog's API."""
        found: Json = await self.get(f"{UNITY}/tables/{path_of(_dotted(name))}")
        return found

    async def create_unity_table(self, name: Name, fields: Mapping[str, object]) -> None:
        """Create a table of a format that only Unity Catalog's API knows."""
        body = {"catalog_name": name.catalog, "schema_name": ".".join(name.levels), "name": name.leaf, **fields}
        await self.change("POST", f"{UNITY}/tables", body)

    async def set_comment(self, kind: str, name: Name, comment: str) -> None:
        """Change the comment of a volume or a model."""
        await self.change("PATCH", f"{UNITY}/{kind}s/{path_of(_dotted(name))}", {"comment": comment})


def object_path(name: Name) -> str:
    """The path of anything below `/objects`; a name of three parts or more is that of an object."""
    if len(name.parts) <= 2:  # noqa: PLR2004 - a catalog, or a namespace of one level
        return _container_path(name)
    return f"{path_of(name.catalog)}/{levels_path(name.levels)}/{path_of(name.leaf)}"


def _container_path(name: Name) -> str:
    if len(name.parts) == 1:
        return path_of(name.catalog)
    return f"{path_of(name.catalog)}/{levels_path(name.parts[1:])}"


def _namespace_path(name: Name) -> str:
    return f"/v1/{path_of(name.catalog)}/namespaces/{levels_path(name.parts[1:])}"


def _named_path(name: Name, collection: str) -> str:
    return f"{_namespace_path(name.parent)}/{collection}/{path_of(name.leaf)}"


def _delta_path(name: Name) -> str:
    schema = path_of(".".join(name.levels))
    return f"{_DELTA}/catalogs/{path_of(name.catalog)}/schemas/{schema}/tables/{path_of(name.leaf)}"


def _dotted(name: Name) -> str:
    """The full name for an API that joins parts by dots; BadRequest if a part has a dot itself."""
    if any("." in part for part in name.parts):
        raise BadRequest(f"{name.plain}: Unity Catalog's API cannot name a part with a dot")
    return name.plain
