"""Who owns, created and changed a securable, and its tags: kept by the catalog, whatever the format of a table."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from sandur.catalog.identifiers import Identifier, full_name_of, parse_schema_name
from sandur.catalog.infos import entity_fields
from sandur.catalog.records import BoundRecord, Catalog, DeltaTable, NamespaceRecord, Pointer, RegistryEntry, Request
from sandur.catalog.security.privileges import SecurableType
from sandur.delta.columns import decode_columns
from sandur.errors import Invalid, NotFound
from sandur.operations.access import Security, require, resolve_authorized
from sandur.operations.containers.records import visible_properties
from sandur.operations.lake import Lake
from sandur.operations.security import current_authority
from sandur.operations.tables.documents import TABLES, VIEWS, load_document
from sandur.operations.tables.names import ResolvedName, name_not_found
from sandur.operations.unity.grants import Target, find_target
from sandur.operations.unity.infos import info_of
from sandur.operations.unity.owners import C, SecurableEdit
from sandur.storage.cell import gather_all

TAGS_MAX: Final = 50
_KEY_CHARS_MAX: Final = 127
_VALUE_CHARS_MAX: Final = 256

Tags = Mapping[str, str]


class Governance(msgspec.Struct, frozen=True, kw_only=True):
    """What the catalog keeps about a securable besides its content. Times are milliseconds since 1970."""

    securable_type: SecurableType
    full_name: str
    tags: Tags
    column_tags: Mapping[str, Tags] = {}
    owner: str | None = None
    comment: str | None = None
    created_at: int | None = None
    created_by: str | None = None
    updated_at: int | None = None
    updated_by: str | None = None


async def load_governance(lake: Lake, securable_type: SecurableType, full_name: str) -> Governance:
    """What the catalog keeps about a securable that the caller may see; NotFound if it does not exist."""
    authority = await current_authority(lake)
    target, container = await gather_all(
        (find_target(lake, authority, securable_type, full_name), _container(lake, securable_type, full_name))
    )
    require(lake, authority, target.chain, missing=target.missing)
    if container and not _is_of(container, target):
        raise target.missing
    return await _governance(lake, securable_type, full_name, target, container)


async def change_tags(
    lake: Lake,
    securable_type: SecurableType,
    full_name: str,
    request: Request,
    *,
    set_: Tags,
    remove: Sequence[str] = (),
    column: str | None = None,
) -> Governance:
    """Set and remove tags of a securable, or of a column of a table. Other tags stay."""
    _check(set_, remove)
    if securable_type == "metastore":
        raise Invalid("The metastore has no tags")
    edit = _TagEdit(
        lake=lake,
        type=securable_type,
        full_name=full_name,
        request=request,
        operation="change-tags",
        set_=set_,
        remove=remove,
    )
    target = await edit.authorize(await lake.feature(Security).read())
    if column is not None:
        edit.column = await _column_key(lake, target, column)
    changed = await edit.swap(target)  # What was written is the answer: it may have another name by now.
    container = await _container(lake, securable_type, full_name)
    held = container if container and _is_of(container, changed) else None
    return await _governance(lake, securable_type, full_name, changed, held)


def _check(set_: Tags, remove: Sequence[str]) -> None:
    for key, value in set_.items():
        if not 0 < len(key) <= _KEY_CHARS_MAX or len(value) > _VALUE_CHARS_MAX:
            raise Invalid(
                f"Invalid tag {key[:_KEY_CHARS_MAX]!r}: expected a name of 1 to {_KEY_CHARS_MAX} characters and a "
                f"value of at most {_VALUE_CHARS_MAX}"
            )
    if both := sorted(set(remove) & set_.keys()):
        raise Invalid(f"Tag {both[0]!r} is both set and removed")
    if not set_ and not remove:
        raise Invalid("No tags to set or remove")


@dataclass(kw_only=True)
class _TagEdit(SecurableEdit):
    """One request to change tags; `column` is the key of the column that they belong to."""

    set_: Tags
    remove: Sequence[str]
    column: str = ""

    def edited(self, record: C) -> C:
        fields: dict[str, Any]
        if not self.column:
            fields = {"tags": self._changed(getattr(record, "tags"))}  # noqa: B009 - every record has it
        else:
            of_columns: Mapping[str, Tags] = getattr(record, "column_tags", {})
            changed = {**of_columns, self.column: self._changed(of_columns.get(self.column, {}))}
            fields = {"column_tags": {key: tags for key, tags in changed.items() if tags}}
        return replace(record, **fields)

    def _changed(self, tags: Tags) -> dict[str, str]:
        kept = {key: value for key, value in tags.items() if key not in self.remove}
        changed = {**kept, **self.set_}
        if len(changed) > TAGS_MAX:
            raise Invalid(f"Too many tags: {len(changed)}, at most {TAGS_MAX} are allowed")
        return changed


async def _columns(lake: Lake, record: BoundRecord) -> Mapping[str, str]:
    """The columns of a table or view, from the key of their tags to their name.

    In an Iceberg table the key is the id of the field, so that tags follow a column that is renamed.
    """
    match record:
        case Pointer(head=head, kind="view") if head:
            view = (await load_document(lake, VIEWS, head.metadata_location)).metadata
            return {str(id_): path for path, id_ in view.current_schema.ids_by_path.items()}
        case Pointer(head=head) if head:
            table = (await load_document(lake, TABLES, head.metadata_location)).metadata
            return {str(id_): path for path, id_ in table.current_schema.ids_by_path.items()}
        case DeltaTable():
            return {column.name: column.name for column in decode_columns(record.columns)}
    return {}


async def _column_key(lake: Lake, target: Target, column: str) -> str:
    columns = await _columns(lake, target.found.pointer.value) if target.found else {}
    for key, name in columns.items():
        if name == column:
            return key
    raise NotFound(f"Column does not exist: {column[:255]}", subject="column")


async def _governance(
    lake: Lake, type_: SecurableType, full_name: str, target: Target, record: "_Container"
) -> Governance:
    if target.found is None:
        if record is None:
            return Governance(securable_type=type_, full_name=full_name, tags={})
        fields = {name: value for name, value in entity_fields(full_name, record).items() if name != "name"}
        if isinstance(record, NamespaceRecord):  # Clients of Iceberg set it as a property.
            fields["comment"] = visible_properties(record).get("comment")
        return Governance(securable_type=type_, full_name=full_name, tags=record.tags, **fields)
    return await _of_named(lake, type_, target.found)


async def load_table_governance(lake: Lake, identifier: Identifier) -> Governance:
    """The same for an Iceberg table, for a client of its own API."""
    missing = name_not_found(identifier, "table")
    found = await resolve_authorized(lake, identifier, lambda found: found.is_a("table"), missing=missing)
    return await _of_named(lake, "table", found)


async def _of_named(lake: Lake, type_: SecurableType, found: ResolvedName) -> Governance:
    identifier, held = found.identifier, found.pointer.value
    info = await info_of(lake, identifier, found.name.value, held)
    names = await _columns(lake, held) if held.column_tags else {}
    return Governance(
        securable_type=type_,
        full_name=full_name_of(identifier),
        tags=held.tags,
        column_tags={names[key]: tags for key, tags in held.column_tags.items() if key in names},
        owner=info.owner,
        comment=info.comment,
        created_at=info.created_at,
        created_by=info.created_by,
        updated_at=info.updated_at,
        updated_by=info.updated_by,
    )


_Container = Catalog | NamespaceRecord | RegistryEntry | None


def _is_of(container: Catalog | NamespaceRecord | RegistryEntry, target: Target) -> bool:
    """A4: whether it is what was authorized: another one may have been made under the name meanwhile."""
    return container.id == target.chain[-1].id


async def _container(lake: Lake, type_: SecurableType, full_name: str) -> _Container:
    """The record of what is neither a table nor inside a schema; None for the metastore."""
    match type_:
        case "catalog":
            catalog = await lake.catalog(full_name).read()
            return catalog.value if catalog else None
        case "schema":
            namespace = await lake.namespace(parse_schema_name(full_name)).read()
            return namespace.value if namespace else None
        case "credential" | "external_location":
            held = await lake.storage_registry().read()
            entries: Mapping[str, RegistryEntry] = {}
            if held:
                entries = held.value.credentials if type_ == "credential" else held.value.locations
            return entries.get(full_name)
    return None
