"""Search for tables by what people remember of them: a part of a name, of a column, of a property, or of a tag."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, get_args

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace, parse_schema_name
from sandur.errors import BadRequest
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore
from sandur.operations.explore.visibility import CHECKED_MAX, Row, Sight
from sandur.operations.lake import Lake
from sandur.operations.published import PublishedDatasets
from sandur.storage.cell import gather_all

HITS_MAX: Final = 100
"""The most hits of each kind."""
TEXT_CHARS_MAX: Final = 200

_NAMED: Final = ("catalog", "namespace", "name", "uuid")
_TABLES: Final = (*_NAMED, "kind", "format", "properties_json", "tags_json")
_COLUMNS: Final = (*_NAMED, "path", "type", "doc")

Found = Literal["name", "column", "property", "tag"]
_KINDS: Final[tuple[Found, ...]] = get_args(Found)


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An object that was found. `detail` is the column with its type, or the property or tag with its value."""

    found: Found
    identifier: Identifier
    kind: str = "table"
    format: str = ""
    detail: str = ""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """`published_ms` is 0 if nothing was published: then nothing can be searched. `is_cut`: there are more hits."""

    published_ms: int
    hits: Sequence[Hit] = ()
    is_cut: bool = False


def scope_of(text: str) -> Namespace | None:
    """The catalog or namespace that a search is limited to, from its full name; None without one."""
    if not text:
        return None
    return parse_schema_name(text) if "." in text else Namespace(text, ())


async def search(lake: Lake, text: str, *, within: Namespace | None = None) -> SearchResult:
    """The tables and views whose name, columns, properties or tags contain the text, in any case."""
    if len(text) > TEXT_CHARS_MAX:
        raise BadRequest(f"Invalid search: {len(text)} characters, at most {TEXT_CHARS_MAX} are allowed")
    published = lake.feature(PublishedDatasets)
    manifest, authority = await gather_all((published.manifest(), authorize_metastore(lake)))
    sight = Sight(lake, authority)
    if not manifest.published_ms or not text.strip():
        return SearchResult(published_ms=manifest.published_ms)
    tables = await published.table(manifest, "tables", _TABLES)
    columns = await published.table(manifest, "columns", _COLUMNS)
    found = await asyncio.to_thread(_find, tables, columns, text.strip(), within)
    named = (row for what, rows in found.items() if what != "column" for row in rows)
    kinds = {row["uuid"]: (row["kind"], row["format"]) for row in named}
    hits: list[Hit] = []
    is_cut = False
    for what in _KINDS:
        rows = await sight.visible(found[what], HITS_MAX + 1)
        is_cut = is_cut or len(rows) > HITS_MAX
        hits += [_hit(what, row, text.strip(), kinds) for row in rows[:HITS_MAX]]
    return SearchResult(published_ms=manifest.published_ms, hits=hits, is_cut=is_cut)


def _find(tables: "pa.Table", columns: "pa.Table", text: str, within: Namespace | None) -> dict[str, list[Row]]:
    """Rows of each kind, the best first; `object` are the tables of the columns."""
    tables, columns = (_within(one, within) for one in (tables, columns))
    parts = text.rsplit(".", 1)
    names = _containing(tables, "name", parts[-1])
    if len(parts) > 1:
        names = names.filter(_contains(names["namespace"], parts[0].rpartition(".")[2]))
    by_column = _containing(columns, "path", text)
    by_property, by_tag = (_containing(tables, column, text) for column in ("properties_json", "tags_json"))
    rows = sorted(names.slice(0, 10 * CHECKED_MAX).to_pylist(), key=lambda row: _rank(row, parts[-1]))
    found = by_column.slice(0, CHECKED_MAX).to_pylist()
    ids = pa.array(sorted({row["uuid"] for row in found}), type=pa.string())
    objects = tables.filter(pc.is_in(tables["uuid"].cast(pa.string()), value_set=ids))
    properties = [row for row in by_property.slice(0, CHECKED_MAX).to_pylist() if _property(row, text)]
    tagged = [row for row in by_tag.slice(0, CHECKED_MAX).to_pylist() if _tag(row, text)]
    return {
        "name": rows[:CHECKED_MAX],
        "column": found,
        "property": properties,
        "tag": tagged,
        "object": objects.to_pylist(),
    }


def _within(table: "pa.Table", within: Namespace | None) -> "pa.Table":
    if within is None:
        return table
    table = table.filter(pc.equal(table["catalog"].cast(pa.string()), within.catalog))
    return table.filter(pc.equal(table["namespace"].cast(pa.string()), str(within))) if within.levels else table


def _containing(table: "pa.Table", column: str, text: str) -> "pa.Table":
    return table.filter(_contains(table[column], text))


def _contains(column: Any, text: str) -> Any:  # noqa: ANN401 - Arrow has no types
    return pc.fill_null(pc.match_substring(column.cast(pa.string()), text, ignore_case=True), fill_value=False)


def _rank(row: Row, text: str) -> tuple[int, str, str, str]:
    """Equal names first, then those that begin with the text, then the others."""
    name, wanted = row["name"].lower(), text.lower()
    place = 0 if name == wanted else 1 if name.startswith(wanted) else 2
    return place, row["name"], row["catalog"], row["namespace"]


def _hit(what: Found, row: Row, text: str, kinds: Mapping[str, tuple[str, str]]) -> Hit:
    kind, format_ = kinds.get(row["uuid"], ("table", ""))
    detail = ""
    if what == "column":
        detail = f"{row['path']} {row['type']}"
    elif what == "property":
        detail = _property(row, text)
    elif what == "tag":
        detail = _tag(row, text)
    identifier = Identifier(row["catalog"], tuple(row["namespace"].split(".")), row["name"])
    return Hit(found=what, identifier=identifier, kind=kind, format=format_, detail=detail)


def _property(row: Row, text: str) -> str:
    """The first property that contains the text; empty if only the form of the JSON does."""
    return _pair(msgspec.json.decode(row["properties_json"] or "{}", type=dict[str, str]), text)


class _PublishedTags(msgspec.Struct):
    tags: dict[str, str] = {}
    columns: dict[str, dict[str, str]] = {}


def _tag(row: Row, text: str) -> str:
    """The first tag of the object or of a column that contains the text; empty if only the form of the JSON does."""
    found = msgspec.json.decode(row["tags_json"] or "{}", type=_PublishedTags)
    of_columns = (_pair(tags, text) for tags in found.columns.values())
    return _pair(found.tags, text) or next((f"{one} (of a column)" for one in of_columns if one), "")


def _pair(values: Mapping[str, str], text: str) -> str:
    wanted = text.lower()
    found = (f"{key} = {value}" for key, value in sorted(values.items()) if wanted in f"{key}={value}".lower())
    return next(found, "")
