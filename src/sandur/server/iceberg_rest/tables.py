"""Handlers for tables, scan planning and transactions, and the names, pages and bodies that all handlers share.

Metadata is spliced into answers as stored, never re-encoded.
"""

import functools
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, assert_never
from urllib.parse import quote

import msgspec

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.index import Entry, names_scope
from sandur.errors import BadRequest, NotFound
from sandur.extras import LazyModule
from sandur.iceberg.requests import (
    TableCommit,
    TableIdentifier,
    decode_create_table,
    decode_register_table,
    decode_table_commit,
    decode_transaction,
)
from sandur.iceberg.scan.requests import decode_scan_request
from sandur.operations.caches import BytesLruCache
from sandur.operations.credentials import table_access
from sandur.operations.credentials.table_access import NO_ACCESS, Delegated
from sandur.operations.index.lists import LISTED_ENTRY_BYTES, list_names
from sandur.operations.lake import Lake
from sandur.operations.tables import documents as operations
from sandur.operations.tables import history, reports
from sandur.operations.tables import register as registration
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable, NotModified
from sandur.operations.tables.drop import drop_name, unregister_table
from sandur.operations.tables.rename import rename
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.governance import load_table_governance
from sandur.server.context import Call, validate_stage_id, whole_number
from sandur.server.errors import error_object
from sandur.server.http import (
    CACHE_CONTROL,
    ETAG,
    JSON,
    NO_CONTENT,
    VARY,
    Answer,
    Headers,
    decode_levels,
    json_answer,
)
from sandur.server.iceberg_rest.delegation import accepted, access_fields
from sandur.server.iceberg_rest.errors import ERRORS

if TYPE_CHECKING:
    from sandur.operations.planning import plans
else:
    plans = LazyModule("sandur.operations.planning.plans")  # It needs numpy and pyarrow.

SEPARATOR: Final = "%1F"
"""Joins the levels of a namespace in a path; `config` announces it to clients."""

encode: Final = msgspec.json.Encoder().encode
_STAGE_REQUIREMENTS: Final = b',"requirements":[{"type":"assert-create"}]}'

# An answer is for one client: it depends on the principal, the workspace and the delegation.
_VARY: Final = (VARY, b"Authorization, X-Iceberg-Access-Delegation, X-Sandur-Tenant, X-Sandur-Workspace")
PRIVATE: Final = ((CACHE_CONTROL, b"private"), _VARY)
SECRET: Final = ((CACHE_CONTROL, b"private, no-store"), _VARY)
"""For answers with credentials: no cache on the way may keep them."""

_LOADED: Final = (JSON, *PRIVATE)
_LOADED_WITH_SECRETS: Final = (JSON, *SECRET)
_PATHS_REMEMBERED_MAX: Final = 8_192
_CACHED_ENTRIES_MIN: Final = 100
_CACHED_LISTS_MAX: Final = 1_000
_CACHED_SHARE: Final = 1 / 8


def _list_bodies(lake: Lake) -> BytesLruCache[tuple[str, str, int], tuple[Sequence[Entry], bytes]]:
    """The entries and the body of whole lists, by the kind, the namespace, and the entries.

    Callers that see different tables have different entries, each with an id of their own.
    """
    return BytesLruCache(
        lake.cache_bytes(_CACHED_SHARE),
        entries_max=_CACHED_LISTS_MAX,
        size_of=lambda cached: len(cached[1]) + LISTED_ENTRY_BYTES * len(cached[0]),
    )


class PageRequest(NamedTuple):
    """The requested page of a list. Without a token it is the whole list, with an empty one the first page."""

    token: str | None
    size: int | None


class Loaded(Protocol):
    """A table or view with its metadata as JSON; without a location it is staged."""

    @property
    def metadata_location(self) -> str | None: ...

    @property
    def metadata(self) -> bytes: ...


class Named(Protocol):
    """An entry of a list; only its name is sent."""

    @property
    def name(self) -> str: ...


class RenameBody(msgspec.Struct, frozen=True):
    source: TableIdentifier
    destination: TableIdentifier


class ReportBody(msgspec.Struct, frozen=True, rename="kebab"):
    """A report of any type: clients may send types that this server does not know."""

    report_type: str


class FetchTasksBody(msgspec.Struct, frozen=True, rename="kebab"):
    plan_task: str


def catalog_of(call: Call) -> str:
    """The prefix names the catalog; the router fills in the default."""
    return call.value("prefix")


def namespace_of(call: Call) -> Namespace:
    return Namespace(catalog_of(call), decode_levels(call.encoded_value("namespace")))


def identifier_of(call: Call, parameter: str) -> Identifier:
    """The table, view or function that the parameter of the path names."""
    catalog, levels = namespace_of(call)
    return Identifier(catalog, levels, call.value(parameter))


def table_of(call: Call) -> Identifier:
    return identifier_of(call, "table")


def page_of(call: Call) -> PageRequest:
    size = call.query.get("pageSize")
    return PageRequest(call.query.get("pageToken"), whole_number(size, "pageSize", at_least=1) if size else None)


async def list_of_kind(call: Call, kind: Kind) -> Answer:
    namespace, page = namespace_of(call), page_of(call)
    found = await list_names(call.lake, namespace, kind=kind, page_token=page.token, page_size=page.size)
    if found.next_token is not None or len(found.entries) < _CACHED_ENTRIES_MIN:
        return json_answer(identifiers_body(namespace, found.entries, found.next_token))
    key, bodies = (kind, names_scope(namespace).text, id(found.entries)), call.lake.feature(_list_bodies)
    cached = bodies.get(key)
    # Operations return the same object while the list does not change.
    if cached is None or cached[0] is not found.entries:
        cached = bodies[key] = (found.entries, identifiers_body(namespace, found.entries, None))
    return json_answer(cached[1])


list_tables = partial(list_of_kind, kind="table")


async def create(call: Call) -> Answer:
    body = decode_create_table(call.http.body)
    stage_id = validate_stage_id(call.http.header(b"iceberg-transaction-id") or "", "Iceberg-Transaction-Id")
    request = call.request(stage_id) if stage_id else call.request()
    loaded = await create_table(call.lake, namespace_of(call), body, request, stage_id=stage_id)
    return await _created_answer(call, body.name, loaded)


def _with_stage(answer: bytes, stage_id: str) -> bytes:
    """The answer to a staged create with fields that clients may ignore: the stage, and what its commit must assert."""
    return answer[: -len(b"}")] + b',"stage-id":' + encode(stage_id) + _STAGE_REQUIREMENTS


async def _created_answer(call: Call, name: str, loaded: LoadedTable) -> Answer:
    """The answer to a request that created a table, with access to its files if the client wants that."""
    identifier, delegated = Identifier(*namespace_of(call), name), NO_ACCESS
    if accepts := accepted(call):
        delegated = await table_access.access_to_created(call.lake, identifier, loaded, accepts)
        if delegated.access and loaded.etag:
            loaded = loaded._replace(etag=table_access.etag_with_access(call.lake, loaded.etag, delegated.access))
    return _loaded_answer(call, identifier, loaded, delegated)


def _loaded_answer(call: Call, identifier: Identifier, loaded: LoadedTable, delegated: Delegated) -> Answer:
    is_staged = loaded.metadata_location is None
    config, credentials = access_fields(call, identifier, delegated, table_path(identifier), is_staged=is_staged)
    body = loaded_body(loaded, config, credentials)
    headers = _headers(loaded.etag, has_secrets=bool(credentials))
    return Answer(200, _with_stage(body, loaded.stage_id) if loaded.stage_id else body, headers)


async def load(call: Call) -> Answer:
    lake, identifier, snapshots = call.lake, table_of(call), _snapshots(call)
    etag = _etag(call.http.header(b"if-none-match"))
    delegated, accepts = NO_ACCESS, accepted(call)
    loaded: LoadedTable | NotModified
    if accepts:
        loaded, delegated = await table_access.load_with_access(
            lake, identifier, accepts, snapshots=snapshots, if_none_match=etag
        )
    else:
        loaded = await operations.load_table(lake, identifier, snapshots=snapshots, if_none_match=etag)
    if call.access and call.access.restrictions:
        # The tag does not depend on the restrictions, so a client must not keep a restricted answer by it.
        if isinstance(loaded, NotModified):
            loaded = await operations.load_table(lake, identifier, snapshots=snapshots)
        if not isinstance(loaded, NotModified):
            body = loaded_body(loaded)[: -len(b"}")]
            restrictions = b',"read-restrictions":' + encode(call.access.restrictions) + b"}"
            return Answer(200, body + restrictions, _headers(None))
    if isinstance(loaded, NotModified):
        return Answer(304, b"", (*PRIVATE, (ETAG, _quoted(loaded.etag))))
    return _loaded_answer(call, identifier, loaded, delegated)


async def load_credentials(call: Call) -> Answer:
    """New credentials for the files of a table, for a client whose credentials expire."""
    identifier = table_of(call)
    found = await table_access.load_access(call.lake, identifier)
    _, credentials = access_fields(call, identifier, Delegated(found), table_path(identifier))
    return json_answer(b'{"storage-credentials":' + (credentials or b"[]") + b"}", *SECRET)


async def exists(call: Call) -> Answer:
    identifier = table_of(call)
    if not await operations.table_exists(call.lake, identifier):
        raise NotFound(f"Table does not exist: {identifier}", subject="table")
    return NO_CONTENT


async def commit(call: Call) -> Answer:
    body = decode_table_commit(call.http.body)
    loaded = await commit_table(call.lake, table_of(call), body, call.request())
    return Answer(200, committed_body(loaded), _headers(loaded.etag))


async def drop(call: Call) -> Answer:
    purge = call.is_set("purgeRequested")
    request = call.request(f"purge={purge}")
    await drop_name(call.lake, table_of(call), kind="table", purge=purge, request=request)
    return NO_CONTENT


async def unregister(call: Call) -> Answer:
    loaded = await unregister_table(call.lake, table_of(call), call.request())
    return json_answer(committed_body(loaded), *PRIVATE)


async def rename_of_kind(call: Call, kind: Kind) -> Answer:
    body = call.body(RenameBody, "rename request")
    await rename(
        call.lake,
        Identifier(catalog_of(call), body.source.namespace, body.source.name),
        Identifier(catalog_of(call), body.destination.namespace, body.destination.name),
        kind=kind,
        request=call.request(),
    )
    return NO_CONTENT


rename_table = partial(rename_of_kind, kind="table")


async def register_table(call: Call) -> Answer:
    body = decode_register_table(call.http.body)
    loaded = await registration.register_table(
        call.lake,
        namespace_of(call),
        body.name,
        body.metadata_location,
        overwrite=bool(body.overwrite),
        request=call.request(),
    )
    return await _created_answer(call, body.name, loaded)


async def metrics(call: Call) -> Answer:
    call.body(ReportBody, "metrics report")
    await reports.report_metrics(call.lake, table_of(call), call.http.body, call.request())
    return NO_CONTENT


async def _history(call: Call, key: str, read: Callable[[Lake, Identifier], Awaitable[object]]) -> Answer:
    return json_answer(encode({key: await read(call.lake, table_of(call))}), *PRIVATE)


schemas = partial(_history, key="schemas", read=history.schema_history)
partition_specs = partial(_history, key="partition-specs", read=history.partition_spec_history)
snapshots = partial(_history, key="snapshots", read=history.snapshot_history)


async def governance(call: Call) -> Answer:
    """Owner, comment, tags, and who created and changed the table: the same that Unity Catalog's clients see."""
    found = await load_table_governance(call.lake, table_of(call))
    return json_answer(encode(msgspec.to_builtins(found)), *PRIVATE)


async def commit_tables(call: Call) -> Answer:
    changes = decode_transaction(call.http.body)
    commits = [(_changed_table(call, change), change) for change in changes]
    await commit_transaction(call.lake, catalog_of(call), commits, call.request())
    return NO_CONTENT


async def plan_scan(call: Call) -> Answer:
    scan = decode_scan_request(call.http.body)
    result = await plans.plan_table_scan(call.lake, table_of(call), scan, call.request())
    return await _plan_answer(call, result, names_plan=True)


async def fetch_plan(call: Call) -> Answer:
    result = await plans.fetch_planning_result(
        call.lake, table_of(call), call.value("plan-id"), principal=call.identity.principal
    )
    return await _plan_answer(call, result, names_plan=False)


async def _plan_answer(call: Call, result: "plans.Result", *, names_plan: bool) -> Answer:
    """The answer about a plan; a completed one comes with access to the files, if the client wants that."""
    body, accepts = _result_body(result, call, names_plan=names_plan), accepted(call)
    if not accepts or not isinstance(result, plans.Completed):
        return json_answer(body, *PRIVATE)
    identifier = table_of(call)
    delegated = await table_access.scan_access(call.lake, identifier, accepts)
    _, credentials = access_fields(call, identifier, delegated, table_path(identifier))
    if not credentials:
        return json_answer(body, *PRIVATE)
    return json_answer(body[: -len(b"}")] + b',"storage-credentials":' + credentials + b"}", *SECRET)


async def cancel_plan(call: Call) -> Answer:
    await plans.cancel_planning(call.lake, table_of(call), call.value("plan-id"), principal=call.identity.principal)
    return NO_CONTENT


async def fetch_scan_tasks(call: Call) -> Answer:
    body = call.body(FetchTasksBody, "task request")
    fields = await plans.fetch_scan_tasks(call.lake, table_of(call), body.plan_task, principal=call.identity.principal)
    return json_answer(b"{" + fields + b"}", *PRIVATE)


def _snapshots(call: Call) -> Literal["all", "refs"]:
    text = call.query.get("snapshots") or "all"
    if text not in {"all", "refs"}:
        raise BadRequest(f"Invalid snapshots: expected all or refs, found {text[:40]!r}")
    return "refs" if text == "refs" else "all"


def _etag(if_none_match: str | None) -> str | None:
    """The first tag of If-None-Match, without quotation marks; None without a tag, and for `*`."""
    if not if_none_match or if_none_match == "*":
        return None
    return if_none_match.split(",", 1)[0].strip().removeprefix("W/").strip('"')


def _headers(etag: str | None, *, has_secrets: bool = False) -> Headers:
    headers = _LOADED_WITH_SECRETS if has_secrets else _LOADED
    return headers if etag is None else (*headers, (ETAG, _quoted(etag)))


def _quoted(etag: str) -> bytes:
    return b'"' + etag.encode("ascii") + b'"'


def _changed_table(call: Call, change: TableCommit) -> Identifier:
    if change.identifier is None:
        raise BadRequest("Invalid table changes: every change needs an identifier")
    return Identifier(catalog_of(call), change.identifier.namespace, change.identifier.name)


def _result_body(result: "plans.Result", call: Call, *, names_plan: bool) -> bytes:
    """The result in the form of its status. Only a completed result may have a list of tasks, even an empty one."""
    match result:
        case plans.Completed(plan_id=plan_id, result=found):
            tasks = b',"plan-tasks":' + encode(found.plan_tasks)
            return b'{"status":"completed","plan-id":' + encode(plan_id) + b"," + found.fields + tasks + b"}"
        case plans.Submitted(plan_id=plan_id):
            return encode({"status": "submitted", "plan-id": plan_id} if names_plan else {"status": "submitted"})
        case plans.Cancelled():
            return encode({"status": "cancelled"})
        case plans.Failed(error=error):
            is_public = call.settings.authentication != "off"
            problem = ERRORS.problem(error, call.operation, call.http.request_id, is_public=is_public)
            return encode({"status": "failed", "error": error_object(problem)})
        case _:
            assert_never(result)


def loaded_body(loaded: Loaded, config: bytes = b"", credentials: bytes = b"") -> bytes:
    """The answer to a load: the metadata, its location unless it is staged, and what the client uses, as JSON."""
    end = b',"config":' + (config or b"{}") + (b',"storage-credentials":' + credentials if credentials else b"") + b"}"
    return b"".join((_beginning(loaded), loaded.metadata, end))


@functools.lru_cache(_PATHS_REMEMBERED_MAX)
def table_path(identifier: Identifier) -> str:
    """The path of a table, relative to the address of the catalog, as Java resolves it."""
    namespace = SEPARATOR.join(quote(level, safe="") for level in identifier.levels)
    name = quote(identifier.name, safe="")
    return f"v1/{quote(identifier.catalog, safe='')}/namespaces/{namespace}/tables/{name}"


def committed_body(loaded: Loaded) -> bytes:
    """The answer to a commit: the metadata and its location."""
    return b"".join((_beginning(loaded), loaded.metadata, b"}"))


def identifiers_body(namespace: Namespace, entries: Sequence[Named], next_token: str | None) -> bytes:
    """A page of identifiers, all of one namespace.

    All names are encoded at once, one per line, and the text between two names is replaced. No encoded name contains a
    line break.
    """
    ending = b'],"next-page-token":' + encode(next_token) + b"}"
    if not entries:
        return b'{"identifiers":[' + ending
    opening = b'{"namespace":' + encode(namespace.levels) + b',"name":'
    lines = msgspec.json.format(encode([entry.name for entry in entries]), indent=1)
    names = lines[len(b"[\n ") : -len(b"\n]")]
    return b"".join((b'{"identifiers":[', opening, names.replace(b",\n ", b"}," + opening), b"}", ending))


def _beginning(loaded: Loaded) -> bytes:
    if loaded.metadata_location is None:
        return b'{"metadata":'
    return b'{"metadata-location":' + encode(loaded.metadata_location) + b',"metadata":'
