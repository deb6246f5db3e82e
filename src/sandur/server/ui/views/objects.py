"""The pages of one object: what it is, with the tabs of its kind."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.catalog.records import ModelVersion
from sandur.catalog.security.grants import EffectivePrivilege
from sandur.operations.browse import Description
from sandur.operations.tables.undrop import DroppedInfo
from sandur.operations.unity.grants import LinkGrants
from sandur.server.ui.links import object_link
from sandur.server.ui.renderer import Crumb, View
from sandur.server.ui.views.data import Tab, container_crumbs

_TABLE_TABS: Final = {
    "": "Overview",
    "snapshots": "Snapshots",
    "timeline": "Timeline",
    "diff": "Compare",
    "files": "Files",
    "preview": "Rows",
    "health": "Health",
    "lineage": "Lineage",
    "grants": "Grants",
}
_TABS: Final[Mapping[str, Mapping[str, str]]] = {
    "table": _TABLE_TABS,
    "view": {"": "Overview", "timeline": "Timeline", "lineage": "Lineage", "grants": "Grants"},
    "volume": {"": "Overview", "grants": "Grants"},
    "function": {"": "Overview", "grants": "Grants"},
    "model": {"": "Overview", "grants": "Grants"},
}


class ObjectHead(msgspec.Struct, frozen=True, kw_only=True):
    """What the head of every page about an object shows."""

    title: str
    crumbs: tuple[Crumb, ...]
    identifier: Identifier
    full_name: str
    kind: str
    tabs: tuple[Tab, ...]
    link: str


class ObjectView(msgspec.Struct, frozen=True, kw_only=True):
    """A page about an object: a `View` with the title and the path of its head."""

    object: ObjectHead
    section: str = "data"

    @property
    def title(self) -> str:
        return self.object.title

    @property
    def crumbs(self) -> tuple[Crumb, ...]:
        return self.object.crumbs


class EngineLine(msgspec.Struct, frozen=True):
    """How an engine reads a table."""

    engine: str
    text: str


class TableView(ObjectView, frozen=True, kw_only=True):
    """The overview of a table."""

    described: Description
    engines: tuple[EngineLine, ...]


def object_head(identifier: Identifier, kind: str, part: str = "") -> ObjectHead:
    """The head of the page `part` about an object."""
    names = _TABS[kind]
    return ObjectHead(
        title=f"{identifier.name} · {names[part]}" if part else identifier.name,
        crumbs=container_crumbs(identifier.namespace),
        identifier=identifier,
        full_name=full_name_of(identifier),
        kind=kind,
        tabs=tuple(Tab(text, object_link(identifier, kind, one), one == part) for one, text in names.items()),
        link=object_link(identifier, kind),
    )


def table_view(identifier: Identifier, described: Description, *, origin: str, needs_login: bool) -> TableView:
    """The overview; `origin` is the address of this server."""
    engines = engine_lines(identifier, described.format, origin, needs_login=needs_login)
    return TableView(object=object_head(identifier, "table"), described=described, engines=engines)


class DescribedView(ObjectView, frozen=True, kw_only=True):
    """The overview of anything but a table. `details` are the fields of its kind."""

    described: Description
    details: Sequence[tuple[str, str]]
    versions: Sequence[ModelVersion] = ()


_SHOWN_ALREADY: Final = frozenset(
    {
        *("name", "catalog_name", "schema_name", "full_name", "comment", "owner", "properties", "columns"),
        *("created_at", "created_by", "updated_at", "updated_by", "storage_location", "id", "routine_definition"),
        *("volume_id", "function_id", "model_id", "model_name", "data_type"),
    }
)

_FIELDS: Final = {"input_params": "parameters", "return_params": "result columns", "full_data_type": "returns"}


def described_view(identifier: Identifier, described: Description, versions: Sequence[ModelVersion]) -> DescribedView:
    details = [
        (_FIELDS.get(name, name.replace("_", " ")), _plain(value))
        for name, value in described.info.items()
        if name not in _SHOWN_ALREADY and value not in (None, "", [], {})
    ]
    return DescribedView(
        object=object_head(identifier, described.kind), described=described, details=details, versions=versions
    )


def _plain(value: object) -> str:
    """The value as text; the parameters of a function as in its declaration."""
    match value:
        case str():
            return value
        case {"parameters": [*parameters]}:
            return ", ".join(f"{one.get('name')} {one.get('type_text', '').upper()}" for one in parameters) or "none"
        case _:
            return msgspec.json.encode(value).decode()


class Effective(NamedTuple):
    """What somebody may do to an object, and why; or the reason why this is not shown."""

    principal: str
    privileges: Sequence[EffectivePrivilege] | None
    problem: str = ""


class GrantsView(ObjectView, frozen=True, kw_only=True):
    """Grants on the object, and those that it inherits, the nearest first. `is_on`: grants are enforced."""

    direct: LinkGrants
    inherited: Sequence[LinkGrants]
    effective: Effective
    is_on: bool


def grants_view(
    identifier: Identifier, kind: str, chain: Sequence[LinkGrants], effective: Effective, *, is_on: bool
) -> GrantsView:
    return GrantsView(
        object=object_head(identifier, kind, "grants"),
        direct=chain[-1],
        inherited=chain[-2::-1],
        effective=effective,
        is_on=is_on,
    )


class DroppedView(View, frozen=True, kw_only=True):
    dropped: DroppedInfo


def dropped_view(dropped: DroppedInfo) -> DroppedView:
    return DroppedView(title=f"{dropped.full_name} was dropped", dropped=dropped)


_IMPORT: Final = "from pyiceberg.catalog import load_catalog"


def engine_lines(
    identifier: Identifier, format_: str, origin: str, *, needs_login: bool = False
) -> tuple[EngineLine, ...]:
    """How to read the table with each engine. Names are quoted where SQL needs it."""
    parts = (*identifier.levels, identifier.name)
    spark = EngineLine("Spark", _select((identifier.catalog, *parts), "`"))
    catalog = identifier.catalog.replace("'", "''")
    select = _select(("lake", *parts), '"')
    if format_ != "iceberg":
        token = "YOUR TOKEN" if needs_login else "any"
        secret = f"CREATE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{origin}', AWS_REGION 'none');"
        attach = f"ATTACH '{catalog}' AS lake (TYPE unity_catalog);"
        return (spark, EngineLine("DuckDB", f"{secret}\n{attach}\n{select}"))
    login = "TOKEN 'YOUR TOKEN'" if needs_login else "AUTHORIZATION_TYPE none"
    attach = f"ATTACH '{catalog}' AS lake (TYPE iceberg, ENDPOINT '{origin}', {login});"
    credential = ", credential='YOUR NAME:YOUR SECRET'" if needs_login else ""
    opened = f"load_catalog('sandur', type='rest', uri={origin!r}, warehouse={identifier.catalog!r}{credential})"
    return (
        EngineLine("PyIceberg", f"{_IMPORT}\nlake = {opened}\nlake.load_table({parts!r}).scan().to_arrow()"),
        spark,
        EngineLine("DuckDB", f"{attach}\n{select}"),
        EngineLine("Trino", _select((identifier.catalog, *parts), '"')),
    )


def _select(names: Sequence[str], quote: str) -> str:
    quoted = (
        name if name.isascii() and name.isidentifier() else f"{quote}{name.replace(quote, 2 * quote)}{quote}"
        for name in names
    )
    return f"SELECT * FROM {'.'.join(quoted)}"  # noqa: S608 - for people, and never executed
