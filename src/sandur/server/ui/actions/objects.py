"""Actions on tables, views, volumes, functions and models: rename, drop, bring back."""

from functools import partial
from typing import Final, NamedTuple, get_args
from urllib.parse import quote

from sandur.catalog.identifiers import Identifier, Kind, Namespace, checked_uuid, full_name_of, parse_full_name
from sandur.catalog.records import DeltaTable, Request
from sandur.errors import BadRequest, Hidden, NotFound
from sandur.operations.access import authorize_name, resolve_authorized
from sandur.operations.tables import undrop as dropped
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.names import EVERY_FORMAT, ResolvedName, name_not_found
from sandur.operations.tables.rename import rename
from sandur.operations.unity.model_versions import drop_model
from sandur.operations.unity.securables import drop_securable
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.needs import SEE_CATALOG
from sandur.server.ui.actions.containers import namespace_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent
from sandur.server.ui.actions.texts import command_text, typed_name
from sandur.server.ui.links import named_action_link, namespace_link, object_link, page_link
from sandur.server.ui.pages.objects import identifier_of
from sandur.server.ui.renderer import Crumb, View, lake_for, page
from sandur.server.ui.texts import duration_text
from sandur.server.ui.views.data import container_crumbs

_PAGES_MAX: Final = 10


async def allowed(call: Call, kind: Kind) -> ResolvedName:
    """The object of the address, if the caller may do to it what the route declares."""
    identifier = identifier_of(call)
    missing = name_not_found(identifier, kind)
    return await resolve_authorized(call.lake, identifier, lambda found: found.name.value.kind == kind, missing=missing)


def object_place(kind: Kind, call: Call) -> tuple[Crumb, ...]:
    identifier = identifier_of(call)
    return (*container_crumbs(identifier.namespace), Crumb(identifier.name, object_link(identifier, kind)))


# Rename


def _target(call: Call, sent: Sent) -> Identifier:
    was = identifier_of(call)
    name, levels = sent.get("name", "").strip(), sent.get("namespace", str(was.namespace)).strip()
    if not name or not all(levels.split(".")):
        raise BadRequest("The new name is missing, or its namespace has an empty level.")
    target = Identifier(was.catalog, was.levels if levels == str(was.namespace) else tuple(levels.split(".")), name)
    if target == was:
        raise BadRequest("The new name is the old one.")
    return target


async def _rename_fields(kind: Kind, call: Call, sent: Sent) -> tuple[Field, ...]:
    await allowed(call, kind)
    was = identifier_of(call)
    hint = "With dots between its levels. It stays in its catalog."
    return (
        Field(name="name", label="New name", value=sent.get("name", was.name), required=True),
        Field(
            name="namespace",
            label="Namespace",
            value=sent.get("namespace", str(was.namespace)),
            hint=hint,
            required=True,
        ),
    )


async def _preview_rename(kind: Kind, call: Call, sent: Sent) -> Preview:
    await allowed(call, kind)
    was, target = identifier_of(call), _target(call, sent)
    return Preview(
        sentence=f"The {kind} gets a new name, at one moment for every reader. Its files and its history stay.",
        changes=(Change("name", full_name_of(was), full_name_of(target)),),
        warning="Queries that use the old name fail from then on.",
        command=command_text("rename", typed_name(was), typed_name(target)),
    )


async def _rename(kind: Kind, call: Call, sent: Sent, request: Request) -> str:
    target = _target(call, sent)
    await rename(call.lake, identifier_of(call), target, kind=kind, request=request, formats=EVERY_FORMAT)
    return object_link(target, kind)


def rename_action(kind: Kind) -> Action:
    return Action(
        title=lambda call: f"Rename {full_name_of(identifier_of(call))}",
        verb=f"Rename the {kind}",
        done="renamed",
        place=partial(object_place, kind),
        fields=partial(_rename_fields, kind),
        preview=partial(_preview_rename, kind),
        apply=partial(_rename, kind),
    )


# Drop


def _is_iceberg_table(found: ResolvedName) -> bool:
    return found.name.value.kind == "table" and found.name.value.format == "iceberg"


def _is_managed_delta(found: ResolvedName) -> bool:
    record = found.pointer.value
    return isinstance(record, DeltaTable) and record.kind == "table" and record.table_type == "MANAGED"


async def _drop_fields(kind: Kind, call: Call, sent: Sent) -> tuple[Field, ...]:
    found = await allowed(call, kind)
    if not _is_iceberg_table(found):
        return ()
    hint = f"The files are deleted {duration_text(call.settings.purge_delay)} after the drop. This needs MODIFY, too."
    return (Field(name="purge", label="Delete its files", kind="check", value=sent.get("purge", ""), hint=hint),)


def _fate_of_files(call: Call, found: ResolvedName, *, purge: bool) -> tuple[str, str]:
    """What becomes of the files, and until when it can come back."""
    kind = found.name.value.kind
    if purge or _is_managed_delta(found):
        delay = duration_text(call.settings.purge_delay)
        return f"deleted {delay} after the drop", f"until its files are deleted, {delay} after the drop"
    if kind in {"function", "model", "view"}:
        return "it has no data files" if kind != "model" else "stay", "as long as the janitors keep its record"
    return "stay where they are; nothing deletes them later", "as long as the janitors keep its record"


async def _preview_drop(kind: Kind, call: Call, sent: Sent) -> Preview:
    found = await allowed(call, kind)
    identifier, purge = identifier_of(call), bool(sent.get("purge")) and _is_iceberg_table(found)
    if purge:
        await authorize_name(call.lake, found, missing=name_not_found(identifier, kind), situation="purge")
    files, back = _fate_of_files(call, found, purge=purge)
    return Preview(
        sentence=f"The {kind} {full_name_of(identifier)} is dropped: its name is free at once, and no query finds it.",
        changes=(Change("its files", "in use", files), Change("it can come back", "", back)),
        warning="Queries and jobs that use it fail from then on.",
        typed=identifier.name,
        command=command_text("drop", typed_name(identifier), *(["--purge"] if purge else [])),
    )


async def _is_purged(call: Call, sent: Sent) -> bool:
    """Whether its files are deleted. What is gone was dropped by the same form before, whose key answers."""
    try:
        found = await allowed(call, "table")
    except Hidden:
        raise
    except NotFound:
        return False
    return _is_managed_delta(found) or (bool(sent.get("purge")) and _is_iceberg_table(found))


async def _drop(kind: Kind, call: Call, sent: Sent, request: Request) -> str:
    identifier = identifier_of(call)
    if kind in {"table", "view"}:
        purge = kind == "table" and await _is_purged(call, sent)
        await drop_name(call.lake, identifier, kind=kind, purge=purge, request=request, formats=EVERY_FORMAT)
    elif kind == "model":
        await drop_model(call.lake, identifier, force=False, request=request)
    else:
        await drop_securable(call.lake, identifier, kind, request)
    return namespace_link(identifier.namespace)


def drop_action(kind: Kind) -> Action:
    return Action(
        title=lambda call: f"Drop {full_name_of(identifier_of(call))}",
        verb=f"Drop the {kind}",
        done="dropped",
        place=partial(object_place, kind),
        fields=partial(_drop_fields, kind),
        preview=partial(_preview_drop, kind),
        apply=partial(_drop, kind),
        is_dangerous=True,
    )


# Bring back what was dropped


def _dropped_kind(call: Call) -> Kind:
    kinds: tuple[Kind, ...] = get_args(Kind)
    for kind in kinds:
        if kind == call.value("kind"):
            return kind
    raise NotFound(f"There is no kind {call.value('kind')[:40]!r}", subject="object")


async def _undrop_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    _dropped_kind(call)
    await _find_dropped(call, sent)
    was = identifier_of(call)
    return (
        Field(
            name="name",
            label="Bring it back as",
            value=sent.get("name", full_name_of(was)),
            hint="A full name in the same catalog.",
            required=True,
        ),
        Field(name="uuid", label="", kind="hidden", value=sent.get("uuid", "")),
    )


async def _find_dropped(call: Call, sent: Sent) -> dropped.DroppedInfo:
    """What was dropped under that name and can come back; the newest one, unless the form says which."""
    kind, was, uuid = _dropped_kind(call), identifier_of(call), sent.get("uuid", "")
    token: str | None = None
    for _ in range(_PAGES_MAX):
        page = await dropped.list_dropped(lake_for(call, SEE_CATALOG), was.catalog, was.namespace, page_token=token)
        for one in sorted(page.entries, key=lambda one: -one.dropped_at):
            if one.kind == kind and one.full_name == full_name_of(was) and uuid in {"", one.uuid}:
                return one
        token = page.next_token
        if token is None:
            break
    raise NotFound(f"Nothing to bring back: no {kind} that was dropped as {full_name_of(was)} is kept", subject=kind)


async def _preview_undrop(call: Call, sent: Sent) -> Preview:
    found = await _find_dropped(call, sent)
    was, target = identifier_of(call), parse_full_name(sent.get("name", "").strip() or found.full_name)
    new_name = ("--name", typed_name(target)) if target != was else ()
    return Preview(
        sentence=f"The {found.kind} comes back with its history, its grants and its tags, as {full_name_of(target)}.",
        changes=(Change("state", "dropped", "in use"),),
        command=command_text("undrop", typed_name(was), "--kind", found.kind, "--id", found.uuid, *new_name),
        kept={"uuid": found.uuid},
    )


async def _undrop(call: Call, sent: Sent, request: Request) -> str:
    kind, was = _dropped_kind(call), identifier_of(call)
    target = parse_full_name(sent.get("name", "").strip() or full_name_of(was))
    uuid = checked_uuid("uuid", sent["uuid"]) if sent.get("uuid") else None
    identifier, _ = await dropped.undrop(call.lake, was, kind=kind, target=target, uuid=uuid, request=request)
    return object_link(identifier, kind)


UNDROP: Final = Action(
    title=lambda call: f"Bring back {full_name_of(identifier_of(call))}",
    verb="Bring it back",
    done="undropped",
    place=namespace_place,
    fields=_undrop_fields,
    preview=_preview_undrop,
    apply=_undrop,
)


class DroppedRow(NamedTuple):
    """Something that can come back, with the address that brings it back."""

    info: dropped.DroppedInfo
    link: str


class DroppedView(View, frozen=True, kw_only=True):
    catalog: str
    rows: tuple[DroppedRow, ...]
    next_link: str = ""


async def show_dropped(call: Call) -> Answer:
    """What was dropped in a catalog and can come back."""
    catalog = call.value("catalog")
    found = await dropped.list_dropped(call.lake, catalog, None, page_token=call.query.get("after") or None)
    rows = tuple(
        DroppedRow(one, named_action_link(f"undrop/{one.kind}", parse_full_name(one.full_name), uuid=one.uuid))
        for one in sorted(found.entries, key=lambda one: -one.dropped_at)
    )
    following = page_link(f"/dropped/{quote(catalog, safe='')}", after=found.next_token) if found.next_token else ""
    view = DroppedView(
        title=f"Dropped in {catalog}",
        crumbs=container_crumbs(Namespace(catalog, ())),
        catalog=catalog,
        rows=rows,
        next_link=following,
    )
    return page(call, "actions/dropped.html", view)
