"""Search for tables by what people remember of them: a part of a name, of a column, of a property, or of a tag."""

import asyncio
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import msgspec

from sandur.catalog.identifiers import Identifier, Namespace, parse_schema_name
from sandur.errors import BadRequest
from sandur.extras import pa, pc
from sandur.operations.access import authorize_metastore
from sandur.operations.explore.visibility import CHECKED_MAX, Row, Sight
from sandur.operations.lake import Lake
from sandur.operations.published import BYTES_PER_PLACE, PublishedDatasets
from sandur.storage.cell import gather_all

HITS_MAX: Final = 100
"""The most hits of each kind."""
TEXT_CHARS_MAX: Final = 200

_NAMED: Final = ("catalog", "namespace", "name", "uuid")
_FORM: Final = ("kind", "format")
_TABLES: Final = (*_NAMED, *_FORM, "properties_json", "tags_json")
_COLUMNS: Final = (*_NAMED, "path", "type")
_SEPARATOR: Final = "\x1f"

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
    wanted = text.strip()
    if not manifest.published_ms or not wanted:
        return SearchResult(published_ms=manifest.published_ms)
    tables = await published.prepared(manifest, "tables", _TABLES, _index_tables)
    columns = await published.prepared(manifest, "columns", _COLUMNS, _index_columns)
    sight = Sight(lake, authority, sequence=manifest.sequence)
    most = HITS_MAX + 1 if sight.is_unlimited else CHECKED_MAX
    found = await asyncio.to_thread(_find, tables, columns, _Wanted(wanted, within, most))
    if not sight.is_unlimited:
        await sight.settle([row for rows in found.values() for row in rows], tables.others)
    hits: list[Hit] = []
    is_cut = False
    for what in _KINDS:
        rows = await sight.visible(found[what], HITS_MAX + 1)
        is_cut = is_cut or len(rows) > HITS_MAX
        hits += [_hit(what, row, wanted, tables) for row in rows[:HITS_MAX]]
    return SearchResult(published_ms=manifest.published_ms, hits=hits, is_cut=is_cut)


class _Wanted(NamedTuple):
    """What is searched, and how many rows of each kind are wanted at most."""

    text: str
    within: Namespace | None
    most: int


class _Texts(NamedTuple):
    """The texts of a column: each one once, in lower case, and which of them every row has.

    Names of columns, properties and tags repeat a lot: a search compares each text once.
    """

    distinct: "pa.Array"
    codes: "pa.Array"

    @property
    def nbytes(self) -> int:
        return int(self.distinct.nbytes + self.codes.nbytes)

    def containing(self, text: str) -> "pa.Array":
        """The numbers of the rows whose text contains this one, which is in lower case; in their order."""
        contains = pc.match_substring(self.distinct, text)
        if not pc.any(contains).as_py():
            return pa.array([], type=pa.uint64())
        return pc.indices_nonzero(contains.take(self.codes))


class _Pairs(NamedTuple):
    """Keys and values of JSON documents, such as properties, as texts `key=value`.

    The pair with the number i is in the document `documents[i]`. `of_rows` are the documents that the rows have.
    """

    pairs: _Texts
    documents: "pa.Array"
    of_rows: "pa.Array"

    @property
    def nbytes(self) -> int:
        return int(self.pairs.nbytes + self.documents.nbytes + self.of_rows.nbytes)

    def containing(self, text: str) -> "pa.Array":
        found = self.pairs.containing(text)
        return pc.indices_nonzero(pc.is_in(self.of_rows, value_set=self.documents.take(found))) if len(found) else found


class _Scopes(NamedTuple):
    """The namespace of every row."""

    distinct: Sequence[tuple[str, str]]
    codes: "pa.Array"

    def keep(self, rows: "pa.Array", is_wanted: Callable[[str, str], bool]) -> "pa.Array":
        """The rows in the namespaces that the function accepts."""
        accepted = pa.array([is_wanted(*one) for one in self.distinct], type=pa.bool_())
        return rows.filter(accepted.take(self.codes.take(rows)))


class _TableIndex(NamedTuple):
    """All tables and views by name, prepared for searches."""

    table: "pa.Table"
    scopes: _Scopes
    names: _Texts
    properties: _Pairs
    tags: _Pairs
    places: Mapping[str, int]

    @property
    def nbytes(self) -> int:
        parts = (self.table, self.scopes.codes, self.names, self.properties, self.tags)
        return int(sum(part.nbytes for part in parts)) + BYTES_PER_PLACE * len(self.places)

    def others(self, start: int, count: int) -> list[Row]:
        """Rows from a number on, from the first one again behind the last."""
        total = self.table.num_rows
        numbers = [(start + one) % total for one in range(min(count, total))]
        return _rows_at(self.table, numbers, _NAMED)

    def kind_of(self, uuid: str) -> tuple[str, str]:
        """The kind and format of an object; a table if it is not among the published ones."""
        place = self.places.get(uuid)
        if place is None:
            return ("table", "")
        return (str(self.table["kind"][place].as_py()), str(self.table["format"][place].as_py()))


class _ColumnIndex(NamedTuple):
    """All columns, prepared for searches."""

    table: "pa.Table"
    scopes: _Scopes
    paths: _Texts

    @property
    def nbytes(self) -> int:
        return int(self.table.nbytes + self.scopes.codes.nbytes + self.paths.nbytes)


def _index_tables(table: "pa.Table") -> _TableIndex:
    table = _plain(table, _TABLES).sort_by(
        [("name", "ascending"), ("catalog", "ascending"), ("namespace", "ascending")]
    )
    table = table.combine_chunks()
    return _TableIndex(
        table=table,
        scopes=_scopes(table),
        names=_texts(table["name"]),
        properties=_pairs(table["properties_json"], _properties_of),
        tags=_pairs(table["tags_json"], lambda one: [*_tags_of(one), *_column_tags_of(one)]),
        places={uuid: place for place, uuid in enumerate(table["uuid"].to_pylist())},
    )


def _index_columns(table: "pa.Table") -> _ColumnIndex:
    table = _plain(table, _COLUMNS).combine_chunks()
    return _ColumnIndex(table=table, scopes=_scopes(table), paths=_texts(table["path"]))


def _plain(table: "pa.Table", columns: Sequence[str]) -> "pa.Table":
    """With texts as they are: files may have them as dictionaries."""
    return table.cast(pa.schema([(name, pa.string()) for name in columns]))


def _encoded(column: Any) -> "tuple[pa.Array, pa.Array]":  # noqa: ANN401 - Arrow has no types
    """The distinct texts of a column in their first order, and the number of the text of each row."""
    filled = pc.fill_null(column, "")
    whole = filled.combine_chunks() if isinstance(filled, pa.ChunkedArray) else filled
    found = whole.dictionary_encode()
    return found.dictionary, found.indices


def _texts(column: Any) -> _Texts:  # noqa: ANN401 - Arrow has no types
    return _Texts(*_encoded(pc.utf8_lower(column)))


def _scopes(table: "pa.Table") -> _Scopes:
    catalogs, namespaces = (pc.fill_null(table[name], "") for name in ("catalog", "namespace"))
    distinct, codes = _encoded(pc.binary_join_element_wise(catalogs, namespaces, _SEPARATOR))
    pairs = [tuple(one.split(_SEPARATOR, 1)) for one in distinct.to_pylist()]
    return _Scopes([(catalog, namespace) for catalog, namespace in pairs], codes)


def _pairs(column: Any, of_document: Callable[[str], Iterable[tuple[str, str]]]) -> _Pairs:  # noqa: ANN401 - as above
    documents, codes = _encoded(column)
    texts: dict[str, int] = {}
    held, parents = array("i"), array("i")
    for number, document in enumerate(documents.to_pylist()):
        for key, value in of_document(document):
            held.append(texts.setdefault(f"{key}={value}", len(texts)))
            parents.append(number)
    distinct = pc.utf8_lower(pa.array(list(texts), type=pa.string()))
    return _Pairs(_Texts(distinct, _numbers(held)), _numbers(parents), codes)


def _numbers(values: "array[int]") -> "pa.Array":
    return pa.Array.from_buffers(pa.int32(), len(values), [None, pa.py_buffer(values.tobytes())])


def _find(tables: _TableIndex, columns: _ColumnIndex, wanted: _Wanted) -> dict[Found, list[Row]]:
    """Rows of each kind, at most as many as are wanted, the best first."""
    text = _lower(wanted.text)

    def rows(of: _TableIndex | _ColumnIndex, found: "pa.Array", more: Sequence[str]) -> list[Row]:
        return _rows_at(of.table, _within(of.scopes, found, wanted.within).slice(0, wanted.most), (*_NAMED, *more))

    return {
        "name": _rows_at(tables.table, _named(tables, wanted), (*_NAMED, *_FORM)),
        "column": rows(columns, columns.paths.containing(text), ("path", "type")),
        "property": rows(tables, tables.properties.containing(text), (*_FORM, "properties_json")),
        "tag": rows(tables, tables.tags.containing(text), (*_FORM, "tags_json")),
    }


def _named(tables: _TableIndex, wanted: _Wanted) -> "pa.Array":
    """Rows by their names: equal ones first, then those that begin with the text, then the others, each in order."""
    above, _, text = _lower(wanted.text).rpartition(".")
    found = tables.names.containing(text)
    if above:
        last = above.rpartition(".")[2]
        found = tables.scopes.keep(found, lambda _, namespace: last in _lower(namespace))
    found = _within(tables.scopes, found, wanted.within)
    if not len(found):
        return found
    names = tables.names.distinct.take(tables.names.codes.take(found))
    is_equal, begins = pc.equal(names, text), pc.starts_with(names, text)
    order = [is_equal, pc.and_not(begins, is_equal), pc.invert(begins)]
    best = [found.filter(one).slice(0, wanted.most) for one in order]
    return pa.concat_arrays(best).slice(0, wanted.most)


def _rows_at(table: "pa.Table", numbers: "pa.Array | list[int]", columns: Sequence[str]) -> list[Row]:
    """These rows of a table, in the order of their numbers."""
    rows: list[Row] = table.select(list(columns)).take(numbers).to_pylist() if len(numbers) else []
    return rows


def _within(scopes: _Scopes, rows: "pa.Array", within: Namespace | None) -> "pa.Array":
    if within is None or not len(rows):
        return rows
    catalog, namespace = within.catalog, str(within) if within.levels else ""
    return scopes.keep(rows, lambda one, other: one == catalog and namespace in {"", other})


def _lower(text: str) -> str:
    """In lower case as the prepared texts are: Python and Arrow differ in a few letters."""
    return str(pc.utf8_lower(pa.scalar(text)).as_py())


def _hit(what: Found, row: Row, text: str, tables: _TableIndex) -> Hit:
    kind, format_ = (row["kind"], row["format"]) if "kind" in row else tables.kind_of(row["uuid"])
    detail = ""
    if what == "column":
        detail = f"{row['path']} {row['type']}"
    elif what == "property":
        detail = _matching(_properties_of(row["properties_json"]), text)
    elif what == "tag":
        detail = _matching(_tags_of(row["tags_json"]), text) or _of_column(row["tags_json"], text)
    identifier = Identifier(row["catalog"], tuple(row["namespace"].split(".")), row["name"])
    return Hit(found=what, identifier=identifier, kind=kind, format=format_, detail=detail)


def _properties_of(document: str | None) -> list[tuple[str, str]]:
    return sorted(_PROPERTIES.decode(document or "{}").items())


class _PublishedTags(msgspec.Struct):
    tags: dict[str, str] = {}
    columns: dict[str, dict[str, str]] = {}


_PROPERTIES: Final = msgspec.json.Decoder(dict[str, str])
_TAGS: Final = msgspec.json.Decoder(_PublishedTags)


def _tags_of(document: str | None) -> list[tuple[str, str]]:
    return sorted(_TAGS.decode(document or "{}").tags.items())


def _column_tags_of(document: str | None) -> list[tuple[str, str]]:
    return [pair for tags in _TAGS.decode(document or "{}").columns.values() for pair in sorted(tags.items())]


def _of_column(document: str | None, text: str) -> str:
    found = _matching(_column_tags_of(document), text)
    return f"{found} (of a column)" if found else ""


def _matching(pairs: Iterable[tuple[str, str]], text: str) -> str:
    """The first pair that contains the text."""
    wanted = _lower(text)
    return next((f"{key} = {value}" for key, value in pairs if wanted in _lower(f"{key}={value}")), "")
