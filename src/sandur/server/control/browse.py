"""Handlers for what people browse: contents, descriptions, history and differences; and for tables from columns in SQL.

The levels of a namespace are joined by %1F in a path, as in the Iceberg REST API.
"""

from typing import Final

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace
from sandur.errors import BadRequest
from sandur.operations import browse as operations
from sandur.operations import jobs
from sandur.operations.explore import search
from sandur.operations.preview import rows
from sandur.operations.tables import timeline
from sandur.operations.tables.definitions import NewTable, define_table
from sandur.server.addresses import check_preview
from sandur.server.context import Call, whole_number
from sandur.server.control.principals import answer_with
from sandur.server.http import Answer, decode_levels

_HISTORY_DEFAULT: Final = 50
_COLLECTIONS: Final = ("names", "namespaces")
_CREATED: Final = 201
_OBJECT_PARTS_MIN: Final = 3


def namespace_of(call: Call) -> Namespace:
    return Namespace(call.value("catalog"), decode_levels(call.encoded_value("namespace")))


def identifier_of(call: Call) -> Identifier:
    return Identifier(*namespace_of(call), call.value("name"))


async def list_catalogs(call: Call) -> Answer:
    return await _list(call, None)


async def list_in_catalog(call: Call) -> Answer:
    return await _list(call, Namespace(call.value("catalog"), ()))


async def list_in_namespace(call: Call) -> Answer:
    return await _list(call, namespace_of(call))


async def _list(call: Call, within: Namespace | None) -> Answer:
    collection = call.query.get("collection") or "names"
    if collection not in _COLLECTIONS:
        raise BadRequest(f"Invalid collection {collection[:40]!r}: expected {' or '.join(_COLLECTIONS)}")
    size = call.query.get("page_size")
    page = await operations.list_contents(
        call.lake,
        within,
        collection="namespaces" if collection == "namespaces" else "names",
        page_token=call.query.get("page_token") or None,
        page_size=None if size is None else whole_number(size, "page_size", at_least=1),
        with_columns=call.is_set("columns"),
    )
    return answer_with({"entries": page.entries, "next_page_token": page.next_token})


async def describe_catalog(call: Call) -> Answer:
    return answer_with(await operations.describe_catalog(call.lake, call.value("catalog")))


async def describe_namespace(call: Call) -> Answer:
    return answer_with(await operations.describe_namespace(call.lake, namespace_of(call)))


async def describe_object(call: Call) -> Answer:
    return answer_with(await operations.describe_object(call.lake, identifier_of(call)))


async def load_history(call: Call) -> Answer:
    limit = call.query.get("limit")
    wanted = _HISTORY_DEFAULT if limit is None else whole_number(limit, "limit", at_least=1)
    return answer_with({"versions": await timeline.load_history(call.lake, identifier_of(call), limit=wanted)})


async def load_changes(call: Call) -> Answer:
    before, after = (_version(call, name) for name in ("from", "to"))
    since, to, changes = await timeline.load_changes(call.lake, identifier_of(call), before=before, after=after)
    return answer_with({"from": since, "to": to, "changes": changes})


def _version(call: Call, name: str) -> int | None:
    text = call.query.get(name)
    return None if not text else whole_number(text, name, at_least=0)


class PreviewRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The first rows of one table, or one SELECT over several. A table is a list: catalog, levels, name."""

    tables: tuple[tuple[str, ...], ...]
    sql: str | None = None
    limit: int = rows.ROWS_DEFAULT


async def preview(call: Call) -> Answer:
    body = call.body(PreviewRequest, "preview request")
    check_preview(call.settings, wants_sql=body.sql is not None)
    if body.limit < 1 or any(len(path) < _OBJECT_PARTS_MIN for path in body.tables):
        raise BadRequest("Malformed preview request: expected a limit from 1, and tables of three names or more")
    identifiers = [Identifier(path[0], path[1:-1], path[-1]) for path in body.tables]
    if body.sql is not None:
        return answer_with(await rows.query_rows(call.lake, identifiers, body.sql, limit=body.limit))
    if len(identifiers) != 1:
        raise BadRequest("Malformed preview request: without sql, expected exactly one table")
    return answer_with(await rows.preview_rows(call.lake, identifiers[0], limit=body.limit))


async def search_objects(call: Call) -> Answer:
    """What contains a text in its name, columns, properties or tags, as it was published last."""
    scope = search.scope_of(call.query.get("in", ""))
    return answer_with(await search.search(call.lake, call.query.get("q", ""), within=scope))


async def list_jobs(call: Call) -> Answer:
    return answer_with(await jobs.list_jobs(call.lake))


async def create_table(call: Call) -> Answer:
    made = await define_table(call.lake, namespace_of(call), call.body(NewTable, "table"), call.request())
    return answer_with(made, status=_CREATED)
