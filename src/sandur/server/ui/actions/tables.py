"""Actions on Iceberg tables: restore a snapshot, branches and tags, properties. Each is one commit."""

from functools import partial
from typing import Final

from sandur.catalog.identifiers import full_name_of
from sandur.catalog.records import Request
from sandur.errors import BadRequest, Conflict
from sandur.iceberg import updates as u
from sandur.iceberg.requests import AssertRefSnapshotId, AssertTableUuid, TableCommit
from sandur.iceberg.snapshots import Snapshot
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.table_summary import totals_of
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.documents import current_document
from sandur.server.context import Call
from sandur.server.ui.actions.objects import object_place
from sandur.server.ui.actions.steps import Action, Change, Field, Preview, Sent
from sandur.server.ui.actions.texts import command_text, property_fields, sent_properties, typed_name
from sandur.server.ui.links import object_link
from sandur.server.ui.pages.objects import identifier_of
from sandur.server.ui.texts import bytes_text, count_text, time_text

MAIN: Final = "main"
_SNAPSHOTS_SHOWN: Final = 200
_ID_CHARS_MAX: Final = 20

_place = partial(object_place, "table")


async def _metadata(call: Call) -> TableMetadata:
    return (await current_document(call.lake, identifier_of(call))).metadata


async def _commit(call: Call, metadata: TableMetadata, request: Request, commit: TableCommit) -> str:
    identifier = identifier_of(call)
    known = AssertTableUuid(uuid=metadata.table_uuid or "")
    requirements = (known, *commit.requirements)
    await commit_table(call.lake, identifier, TableCommit(requirements, commit.updates), request)
    return object_link(identifier, "table")


def _snapshot_choice(label: str, metadata: TableMetadata, chosen: str, *, leaves_out: int | None = None) -> Field:
    newest = sorted(metadata.snapshots, key=lambda one: -one.timestamp_ms)[:_SNAPSHOTS_SHOWN]
    shown = [one for one in newest if one.snapshot_id != leaves_out]
    options = tuple((str(one.snapshot_id), _snapshot_text(one, metadata)) for one in shown)
    hint = "" if options else "The table has no earlier snapshot."
    return Field(name="snapshot", label=label, kind="choice", value=chosen, options=options, hint=hint, required=True)


def _snapshot_text(snapshot: Snapshot, metadata: TableMetadata) -> str:
    operation = (snapshot.summary or {}).get("operation", "")
    mark = ", current" if snapshot.snapshot_id == metadata.current_snapshot_id else ""
    return f"{time_text(snapshot.timestamp_ms)} {operation} ({snapshot.snapshot_id}{mark})"


def _snapshot(metadata: TableMetadata, sent: Sent) -> Snapshot:
    text = sent.get("snapshot", "").strip()
    if not text.removeprefix("-").isdecimal() or not text.isascii() or len(text) > _ID_CHARS_MAX:
        raise BadRequest("Choose a snapshot.")
    found = next((one for one in metadata.snapshots if one.snapshot_id == int(text)), None)
    if found is None:
        raise BadRequest(f"Snapshot {text} does not exist: it may have expired.")
    return found


def _expected(sent: Sent) -> int | None:
    """The snapshot that the preview showed."""
    text = sent.get("expected", "")
    is_id = text.isascii() and text.removeprefix("-").isdecimal() and len(text) <= _ID_CHARS_MAX
    return int(text) if is_id else None


# Restore


async def _restore_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    metadata = await _metadata(call)
    chosen, current = sent.get("snapshot", ""), metadata.current_snapshot_id
    # Restoring the current snapshot changes nothing. It is there only if a link chose it: the preview says so then.
    leaves_out = None if chosen == str(current) else current
    return (_snapshot_choice("Restore the table to", metadata, chosen, leaves_out=leaves_out),)


def _total_changes(before: Snapshot | None, after: Snapshot) -> tuple[Change, ...]:
    was, then = totals_of(before), totals_of(after)
    return (
        Change("rows", count_text(was.rows), count_text(then.rows)),
        Change("size", bytes_text(was.bytes), bytes_text(then.bytes)),
        Change("data files", count_text(was.data_files), count_text(then.data_files)),
        Change("delete files", count_text(was.delete_files), count_text(then.delete_files)),
    )


async def _preview_restore(call: Call, sent: Sent) -> Preview:
    metadata, identifier = await _metadata(call), identifier_of(call)
    target, current = _snapshot(metadata, sent), metadata.current_snapshot
    if target.snapshot_id == metadata.current_snapshot_id:
        raise BadRequest("The table is at this snapshot already.")
    now = f"{time_text(current.timestamp_ms)} ({current.snapshot_id})" if current else ""
    then = f"{time_text(target.timestamp_ms)} ({target.snapshot_id})"
    return Preview(
        sentence=f"Readers of {full_name_of(identifier)} see the rows of {time_text(target.timestamp_ms)} again. "
        "The columns and properties stay as they are. The snapshots in between stay until they expire.",
        changes=(Change("snapshot of main", now, then), *_total_changes(current, target)),
        warning="Commits that were based on the present snapshot fail.",
        command=command_text("rollback", typed_name(identifier), "--snapshot", str(target.snapshot_id)),
        kept={"expected": str(metadata.current_snapshot_id or "")},
    )


async def _restore(call: Call, sent: Sent, request: Request) -> str:
    metadata = await _metadata(call)
    # What the preview showed, not what the table is at now: another commit in between is a conflict.
    target, expected = _snapshot(metadata, sent), _expected(sent)
    update = u.SetSnapshotRef(ref_name=MAIN, type="branch", snapshot_id=target.snapshot_id)
    commit = TableCommit((AssertRefSnapshotId(ref=MAIN, snapshot_id=expected),), (update,))
    return await _commit(call, metadata, request, commit)


RESTORE: Final = Action(
    title=lambda call: f"Restore {full_name_of(identifier_of(call))}",
    verb="Restore the table",
    done="restored",
    place=_place,
    fields=_restore_fields,
    preview=_preview_restore,
    apply=_restore,
)


# Branches and tags


async def _ref_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    metadata = await _metadata(call)
    kinds = (("tag", "Tag: it stays at its snapshot"), ("branch", "Branch: commits can move it"))
    return (
        Field(name="ref", label="Name", value=sent.get("ref", ""), required=True),
        Field(name="type", label="Kind", kind="choice", value=sent.get("type", "tag"), options=kinds, required=True),
        _snapshot_choice("At", metadata, sent.get("snapshot", str(metadata.current_snapshot_id or ""))),
    )


def _new_ref(metadata: TableMetadata, sent: Sent) -> u.SetSnapshotRef:
    name, kind = sent.get("ref", "").strip(), sent.get("type", "tag")
    if not name or kind not in {"tag", "branch"}:
        raise BadRequest("The name is missing, or the kind is neither tag nor branch.")
    return u.SetSnapshotRef(ref_name=name, type=kind, snapshot_id=_snapshot(metadata, sent).snapshot_id)


async def _preview_ref(call: Call, sent: Sent) -> Preview:
    metadata = await _metadata(call)
    ref = _new_ref(metadata, sent)
    if existing := metadata.ref(ref.ref_name):
        raise Conflict(f"The {existing.type} {ref.ref_name} exists already, at snapshot {existing.snapshot_id}.")
    return Preview(
        sentence=f"The {ref.type} {ref.ref_name} is created. It keeps its snapshot from expiring.",
        changes=(Change(f"{ref.type} {ref.ref_name}", "", f"snapshot {ref.snapshot_id}"),),
        command=command_text(
            ref.type, typed_name(identifier_of(call)), ref.ref_name, "--snapshot", str(ref.snapshot_id)
        ),
    )


async def _create_ref(call: Call, sent: Sent, request: Request) -> str:
    metadata = await _metadata(call)
    ref = _new_ref(metadata, sent)
    commit = TableCommit((AssertRefSnapshotId(ref=ref.ref_name, snapshot_id=None),), (ref,))
    return await _commit(call, metadata, request, commit)


CREATE_REF: Final = Action(
    title=lambda call: f"New tag or branch of {full_name_of(identifier_of(call))}",
    verb="Create it",
    done="branched",
    place=_place,
    fields=_ref_fields,
    preview=_preview_ref,
    apply=_create_ref,
)


async def _remove_ref_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    metadata = await _metadata(call)
    names = [name for name in metadata.refs if name != MAIN]
    options = tuple((name, f"{metadata.refs[name].type} {name}") for name in sorted(names))
    return (
        Field(
            name="ref",
            label="Branch or tag",
            kind="choice",
            value=sent.get("ref", ""),
            options=options,
            hint="" if options else "The table has none but main.",
            required=True,
        ),
    )


async def _preview_remove_ref(call: Call, sent: Sent) -> Preview:
    metadata, name = await _metadata(call), sent.get("ref", "")
    found = metadata.ref(name)
    if found is None or name == MAIN:
        raise BadRequest(f"There is no branch or tag {name[:80]!r} that can be removed.")
    return Preview(
        sentence=f"The {found.type} {name} is removed.",
        changes=(Change(f"{found.type} {name}", f"snapshot {found.snapshot_id}", ""),),
        warning="Snapshots that only it keeps can expire from then on, and their rows are lost.",
        typed=name,
        kept={"expected": str(found.snapshot_id)},
    )


async def _remove_ref(call: Call, sent: Sent, request: Request) -> str:
    metadata, name = await _metadata(call), sent.get("ref", "")
    requirement = AssertRefSnapshotId(ref=name, snapshot_id=_expected(sent))
    return await _commit(call, metadata, request, TableCommit((requirement,), (u.RemoveSnapshotRef(ref_name=name),)))


REMOVE_REF: Final = Action(
    title=lambda call: f"Remove a tag or branch of {full_name_of(identifier_of(call))}",
    verb="Remove it",
    done="removed",
    place=_place,
    fields=_remove_ref_fields,
    preview=_preview_remove_ref,
    apply=_remove_ref,
    is_dangerous=True,
)


# Properties


async def _property_fields(call: Call, sent: Sent) -> tuple[Field, ...]:
    return property_fields((await _metadata(call)).properties, sent)


async def _preview_properties(call: Call, sent: Sent) -> Preview:
    changes, _ = sent_properties((await _metadata(call)).properties, sent)
    return Preview(sentence=f"The properties of {full_name_of(identifier_of(call))} change.", changes=changes)


async def _change_properties(call: Call, sent: Sent, request: Request) -> str:
    metadata = await _metadata(call)
    changes, after = sent_properties(metadata.properties, sent)
    updates = {one.what: after[one.what] for one in changes if one.what in after}
    removals = tuple(one.what for one in changes if one.what not in after)
    wanted: list[u.Update] = [u.SetProperties(updates=updates)] if updates else []
    wanted += [u.RemoveProperties(removals=removals)] if removals else []
    return await _commit(call, metadata, request, TableCommit((), tuple(wanted)))


TABLE_PROPERTIES: Final = Action(
    title=lambda call: f"Properties of {full_name_of(identifier_of(call))}",
    verb="Change the properties",
    done="properties",
    place=_place,
    fields=_property_fields,
    preview=_preview_properties,
    apply=_change_properties,
)
