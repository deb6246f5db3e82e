"""Other catalogs, read for an import: an Iceberg REST catalog, or a Unity Catalog server. Nothing is changed there."""

import contextlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

import httpx
import msgspec

from sandur import __version__
from sandur.client.catalog import UNITY, Json, path_of
from sandur.client.profiles import Profile, Profiles
from sandur.client.sessions import Session, Target, checked_server
from sandur.clock import Clock
from sandur.errors import BadRequest, NotFound, Unauthenticated, Unavailable, Unsupported

TOKEN_VARIABLE: Final = "SANDUR_SOURCE_TOKEN"  # noqa: S105 - a name
CREDENTIAL_VARIABLE: Final = "SANDUR_SOURCE_CREDENTIAL"
_PAGES_MAX: Final = 10_000
_DEPTH_MAX: Final = 32
_TRIES_MAX: Final = 4
_RETRY_SECONDS: Final = 0.5
_SECONDS_MAX: Final = 120.0
_FUNCTION_IDS: Final = frozenset(
    {"name", "catalog_name", "schema_name", "full_name", "function_id", "owner", "created_at", "created_by"}
    | {"updated_at", "updated_by", "comment", "browse_only", "metastore_id"}
)

Kind = Literal["namespace", "table", "view", "volume", "function", "model"]


class Entry(NamedTuple):
    """A name in the source, below its catalog. `content` is what the list of the source says about it already."""

    kind: Kind
    name: tuple[str, ...]
    content: Mapping[str, Any] = {}


class SourceObject(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the source.

    An Iceberg table has a metadata file, and the earlier files in its log. `problem` says why it cannot be imported.
    """

    kind: Kind
    name: tuple[str, ...]
    format: str = ""
    location: str = ""
    metadata_location: str = ""
    uuid: str = ""
    earlier: frozenset[str] = frozenset()
    comment: str = ""
    properties: dict[str, str] = {}
    content: dict[str, Any] = {}
    problem: str = ""


class Source(Protocol):
    """A catalog, or a folder, that objects are imported from."""

    def entries(self) -> AsyncIterator[Entry]:
        """Everything in it, namespaces before what is in them."""

    async def load(self, entry: Entry) -> SourceObject:
        """One object; raises NotFound if it has disappeared."""


class SourceLogin(NamedTuple):
    """How to log in to a source: by a token, by a client id with its secret, or by signatures of AWS."""

    token: str = ""
    credential: str = ""
    oauth_uri: str = ""
    scope: str = "catalog"
    signing_region: str = ""
    signing_name: str = "glue"

    def __repr__(self) -> str:
        return f"SourceLogin(scope={self.scope!r})"


class SourceSession(Session):
    """Requests to the server of a source, which read. They are repeated if the server is busy."""

    def __init__(self, http: httpx.AsyncClient, url: str, login: SourceLogin, profiles: Profiles, clock: Clock) -> None:
        super().__init__(http, Target("", Profile(server=url)), profiles, clock)
        self._login = login
        self._token = login.token

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> bytes:
        """The answer to a request; raises Unavailable after the last attempt."""
        for attempt in range(_TRIES_MAX):
            try:
                return await self.request("GET", path, query=query)
            except Unauthenticated:
                if attempt or not self._login.credential:
                    raise
                self._token = ""  # It may have expired.
            except Unavailable:
                if attempt == _TRIES_MAX - 1:
                    raise
                await self._clock.sleep(_RETRY_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    async def token(self) -> str:
        if self._token or not self._login.credential:
            return self._token
        client_id, _, secret = self._login.credential.partition(":")
        form = {"grant_type": "client_credentials", "client_id": client_id, "client_secret": secret}
        uri = self._login.oauth_uri or f"{self.target.server}/v1/oauth/tokens"
        try:
            answer = await self.http.post(uri, data={**form, "scope": self._login.scope})
        except httpx.HTTPError as error:
            raise Unavailable(f"source: no answer from {uri}: {error}") from error
        if not answer.is_success:
            raise Unauthenticated(f"source: {uri} refused the login with status {answer.status_code}{self._hint()}")
        try:
            self._token = str(msgspec.json.decode(answer.content)["access_token"])
        except (msgspec.DecodeError, KeyError, TypeError):
            raise Unauthenticated(f"source: {uri} answered without an access_token{self._hint()}") from None
        return self._token

    def _hint(self) -> str:
        return f"; set {TOKEN_VARIABLE}, or {CREDENTIAL_VARIABLE} to ID:SECRET with --oauth-uri and --scope"


class _Signatures(httpx.Auth):
    """AWS Signature Version 4 with the credentials that the AWS tools use here."""

    def __init__(self, region: str, service: str) -> None:
        from botocore.session import get_session  # noqa: PLC0415 - slow to import

        self._region, self._service = region, service
        self._keys = get_session().get_credentials()
        if self._keys is None:
            raise Unauthenticated("source: no AWS credentials found; set AWS_ACCESS_KEY_ID or AWS_PROFILE")

    def auth_flow(self, request: httpx.Request) -> Iterator[httpx.Request]:  # type: ignore[override] # It sends nothing back.
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - slow to import
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - slow to import

        signed = AWSRequest(method=request.method, url=str(request.url), data=request.content)
        SigV4Auth(self._keys.get_frozen_credentials(), self._service, self._region).add_auth(signed)
        request.headers.update(dict(signed.headers.items()))
        yield request


@contextlib.asynccontextmanager
async def source_session(
    url: str, login: SourceLogin, profiles: Profiles, clock: Clock
) -> AsyncIterator[SourceSession]:
    """A session that is closed at the end. Redirects are not followed: a token is for one server."""
    if login.credential and ":" not in login.credential:
        raise BadRequest(f"{CREDENTIAL_VARIABLE}: expected ID:SECRET")
    auth = _Signatures(login.signing_region, login.signing_name) if login.signing_region else None
    headers = {"User-Agent": f"sandur/{__version__}"}
    async with httpx.AsyncClient(timeout=_SECONDS_MAX, headers=headers, auth=auth) as http:
        yield SourceSession(http, checked_server(url), login, profiles, clock)


class _Config(msgspec.Struct, frozen=True):
    defaults: dict[str, str | None] = {}
    overrides: dict[str, str | None] = {}
    endpoints: list[str] | None = None

    def value(self, key: str) -> str:
        return self.overrides.get(key) or self.defaults.get(key) or ""


class _Logged(msgspec.Struct, frozen=True, rename="kebab"):
    metadata_file: str = ""


class _Metadata(msgspec.Struct, frozen=True, rename="kebab"):
    location: str = ""
    table_uuid: str = ""
    metadata_log: tuple[_Logged, ...] = ()


class _LoadedTable(msgspec.Struct, frozen=True, rename="kebab"):
    metadata: _Metadata
    metadata_location: str | None = None


class _Identifier(msgspec.Struct, frozen=True):
    namespace: tuple[str, ...]
    name: str


class _Page(msgspec.Struct, frozen=True, rename="kebab"):
    """A page of any list of the protocol."""

    namespaces: tuple[tuple[str, ...], ...] = ()
    identifiers: tuple[_Identifier, ...] = ()
    next_page_token: str | None = None


class _Namespace(msgspec.Struct, frozen=True):
    properties: dict[str, str] | None = None


class RestSource:
    """An Iceberg REST catalog."""

    def __init__(self, session: SourceSession, warehouse: str, only: Sequence[tuple[str, ...]]) -> None:
        self._session = session
        self._warehouse = warehouse
        self._only = only
        self._base = ""
        self._separator = "%1F"
        self._has_views = True

    async def entries(self) -> AsyncIterator[Entry]:
        await self._configure()
        async for levels in self._namespaces():
            yield Entry("namespace", levels)
            for kind, collection in (("table", "tables"), ("view", "views")):
                if kind == "view" and not self._has_views:
                    continue
                async for name in self._names(levels, collection):
                    yield Entry("table" if kind == "table" else "view", (*levels, name))

    async def load(self, entry: Entry) -> SourceObject:
        match entry.kind:
            case "namespace":
                answer = _decoded(await self._session.get(self._path(entry.name)), _Namespace)
                kept = {key: value for key, value in (answer.properties or {}).items() if key != "location"}
                return SourceObject(kind="namespace", name=entry.name, properties=kept)
            case "table":
                return await self._load_table(entry.name)
            case _:
                path = f"{self._path(entry.name[:-1])}/views/{path_of(entry.name[-1])}"
                metadata = _decoded(await self._session.get(path), dict[str, Any])["metadata"]
                return _view_object(entry.name, metadata)

    async def _load_table(self, name: tuple[str, ...]) -> SourceObject:
        path = f"{self._path(name[:-1])}/tables/{path_of(name[-1])}"
        loaded = _decoded(await self._session.get(path, {"snapshots": "refs"}), _LoadedTable)
        return SourceObject(
            kind="table",
            name=name,
            format="iceberg",
            location=loaded.metadata.location,
            metadata_location=loaded.metadata_location or "",
            uuid=loaded.metadata.table_uuid,
            earlier=frozenset(one.metadata_file for one in loaded.metadata.metadata_log),
            problem="" if loaded.metadata_location else "the source does not say where its metadata file is",
        )

    async def _configure(self) -> None:
        query = {"warehouse": self._warehouse} if self._warehouse else None
        config = _decoded(await self._session.get("/v1/config", query), _Config)
        own, named = self._session.target.server, config.value("uri").rstrip("/")
        if named and urlsplit(named)[:2] != urlsplit(own)[:2]:
            raise BadRequest(f"source {own}: it refers to another server, {named}; give that address")
        if named:  # Nessie, for example, serves every branch below one address.
            self._session.target = Target("", Profile(server=named))
        self._base = "/".join(part for part in ("/v1", config.value("prefix").strip("/"), "namespaces") if part)
        self._separator = config.value("namespace-separator") or self._separator
        if config.endpoints is not None:
            self._has_views = any(one.startswith("GET ") and one.endswith("/views") for one in config.endpoints)

    async def _namespaces(self) -> AsyncIterator[tuple[str, ...]]:
        for levels in self._only:
            for depth in range(1, len(levels)):
                yield levels[:depth]
        pending = list(reversed(self._only)) or [()]
        while pending:
            levels = pending.pop()
            if levels:
                yield levels
            if len(levels) < _DEPTH_MAX:
                pending += reversed([child async for child in self._children(levels)])

    async def _children(self, levels: tuple[str, ...]) -> AsyncIterator[tuple[str, ...]]:
        query = {"parent": unquote(self._separator).join(levels)} if levels else {}
        try:
            async for page in self._pages(self._base, query):
                for one in page.namespaces:
                    if len(one) == len(levels) + 1:  # Some servers list all levels at once.
                        yield one
        except (BadRequest, NotFound, Unsupported):
            if not levels:  # Below a namespace, it says that the source has one level only.
                raise

    async def _names(self, levels: tuple[str, ...], collection: str) -> AsyncIterator[str]:
        try:
            async for page in self._pages(f"{self._path(levels)}/{collection}", {}):
                for one in page.identifiers:
                    yield one.name
        except (BadRequest, NotFound, Unsupported):
            if collection == "tables":
                raise
            self._has_views = False

    async def _pages(self, path: str, query: Mapping[str, str]) -> AsyncIterator[_Page]:
        sent = dict(query)
        for _ in range(_PAGES_MAX):
            page = _decoded(await self._session.get(path, sent), _Page)
            yield page
            if not page.next_page_token:
                return
            sent["pageToken"] = page.next_page_token
        raise BadRequest(f"source: {path} has more than {_PAGES_MAX} pages; import some namespaces with --namespace")

    def _path(self, levels: Sequence[str]) -> str:
        return f"{self._base}/{self._separator.join(path_of(level) for level in levels)}"


def _view_object(name: tuple[str, ...], metadata: Json) -> SourceObject:
    """The current version of a view; raises BadRequest if the metadata has no such version."""
    try:
        version = next(one for one in metadata["versions"] if one["version-id"] == metadata["current-version-id"])
        schema = next(one for one in metadata["schemas"] if one["schema-id"] == version["schema-id"])
    except (KeyError, StopIteration) as error:
        raise BadRequest(f"source: view {'.'.join(name)} has no current version: {error!r}") from error
    kept = ("representations", "default-namespace", "default-catalog")
    content = {"schema": schema, **{field: version[field] for field in kept if version.get(field) is not None}}
    properties = dict(metadata.get("properties") or {})
    return SourceObject(kind="view", name=name, format="iceberg", properties=properties, content=content)


class UnitySource:
    """A catalog of a Unity Catalog server."""

    def __init__(self, session: SourceSession, catalog: str, only: Sequence[tuple[str, ...]]) -> None:
        self._session = session
        self._catalog = catalog
        self._only = {".".join(levels) for levels in only}

    async def entries(self) -> AsyncIterator[Entry]:
        async for schema in self._infos("schemas", {"catalog_name": self._catalog}):
            name = schema["name"]
            if self._only and name not in self._only:
                continue
            levels = tuple(name.split("."))
            yield Entry("namespace", levels, schema)
            query = {"catalog_name": self._catalog, "schema_name": name}
            async for table in self._infos("tables", query):
                is_view = str(table.get("table_type", "")).endswith("VIEW")
                yield Entry("view" if is_view else "table", (*levels, table["name"]), table)
            async for volume in self._infos("volumes", query):
                yield Entry("volume", (*levels, volume["name"]), volume)
            async for function in self._infos("functions", query):
                yield Entry("function", (*levels, function["name"]), function)
            async for model in self._infos("models", query, field="registered_models"):
                yield Entry("model", (*levels, model["name"]), model)

    async def load(self, entry: Entry) -> SourceObject:
        info = entry.content
        comment = info.get("comment") or ""
        match entry.kind:
            case "namespace":
                properties = dict(info.get("properties") or {})
                return SourceObject(kind="namespace", name=entry.name, comment=comment, properties=properties)
            case "table":
                return _unity_table(entry, comment)
            case "volume":
                content = {"volume_type": "EXTERNAL", "storage_location": info.get("storage_location")}
                problem = "" if info.get("volume_type") == "EXTERNAL" else "a managed volume; copy its files"
                return SourceObject(kind="volume", name=entry.name, comment=comment, content=content, problem=problem)
            case "function":
                content = {key: value for key, value in info.items() if key not in _FUNCTION_IDS and value is not None}
                return SourceObject(kind="function", name=entry.name, comment=comment, content=content)
            case "view":
                problem = "a view of Unity Catalog; create it again: sandur create view"
                return SourceObject(kind="view", name=entry.name, problem=problem)
            case "model":
                return SourceObject(kind="model", name=entry.name, problem="a model; the source manages its files")

    async def _infos(self, collection: str, query: Mapping[str, str], *, field: str = "") -> AsyncIterator[Json]:
        sent = dict(query)
        for _ in range(_PAGES_MAX):
            try:
                page = _decoded(await self._session.get(f"{UNITY}/{collection}", sent), dict[str, Any])
            except (NotFound, Unsupported):
                if collection in {"schemas", "tables"}:
                    raise
                return  # An older server has no such collection.
            for info in page.get(field or collection) or ():
                yield info
            if not page.get("next_page_token"):
                return
            sent["page_token"] = page["next_page_token"]


def _unity_table(entry: Entry, comment: str) -> SourceObject:
    info = entry.content
    format_, location = str(info.get("data_source_format", "")).lower(), str(info.get("storage_location") or "")
    found = SourceObject(kind="table", name=entry.name, format=format_, location=location, comment=comment)
    if format_ == "iceberg":
        return msgspec.structs.replace(found, problem="an Iceberg table; use sandur import rest")
    if info.get("table_type") != "EXTERNAL":
        hint = "the source manages it; copy it with an engine: CREATE TABLE … AS SELECT"
        return msgspec.structs.replace(found, problem=hint)
    if format_ == "delta":
        return found
    fields = ("table_type", "data_source_format", "columns", "storage_location", "comment", "properties")
    return msgspec.structs.replace(found, content={key: info[key] for key in fields if info.get(key) is not None})


def _decoded(data: bytes, kind: "type[Any]") -> Any:  # noqa: ANN401 - of the given type
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise BadRequest(f"source: not the answer of such a catalog: {error}") from error
