"""The records that the catalog keeps in cells: their fields and their states."""

from typing import Final, Literal, NamedTuple

import msgspec

from sandur import errors
from sandur.catalog.events import AttemptedEvent, CatalogEvent, Source
from sandur.catalog.functions import DependencyList, FunctionDefinition
from sandur.catalog.identifiers import Format, Identifier, Kind
from sandur.catalog.record_versions import Record
from sandur.errors import Subject


class Request(NamedTuple):
    """The part of a mutation that is not its body.

    `key` is the idempotency key in canonical form, None if the client sent none; `hash` identifies the body.
    """

    hash: str
    key: str | None = None
    source: Source = Source()


class LastChange(msgspec.Struct, frozen=True, omit_defaults=True):
    """The request that changed a record last.

    With an idempotency key, `operation` and `id` name its claim, and `answer` is what a replay needs. The next writer
    of the record first completes that claim (G6), so that a retry always learns that the request happened.
    """

    id: str
    operation: str = ""
    answer: str = ""


class _Container(Record, frozen=True, kw_only=True):
    """The fields that catalogs and namespaces share. `last_event` is its last change; None in older records.

    `is_fenced`: a rename was about to give its name to another container. Who creates one here first bumps the
    manifest (X4).
    """

    id: str
    comment: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    owner: str = ""
    owner_id: str = ""
    change: LastChange | None = None
    last_event: CatalogEvent | None = None
    created_ms: int = 0
    created_by: str = ""
    updated_ms: int = 0
    updated_by: str = ""
    is_fenced: bool = False


class Catalog(_Container, frozen=True, kw_only=True):
    """A catalog: a tree of namespaces, and the default root of its tables.

    `dropping` and `dropped` are as for a namespace. `asked_root` is the root that the client requested, if any.
    `places` are the roots of its namespaces that it has or had (P9), as addresses.
    """

    name: str
    root: str
    state: Literal["active", "dropping", "dropped"] = "active"
    asked_root: str = ""
    places: tuple[str, ...] = ()


class NamespaceRecord(_Container, frozen=True, kw_only=True):
    """A namespace. `id` is new at every creation, so that a child can tell whether its namespace was created again.

    `new`: the parent (for a first level the catalog) has not been read since the namespace was written. `dropping`
    reads as active, and a writer of a child swaps it back (N6). `dropped` means absent, and has no id. No operation
    deletes a namespace or a name, it is only swapped (N9): a writer that expects it absent then cannot bring it back.

    `comment` is one that was set apart from the properties; a comment among the properties wins. `catalog_id` is the id
    of its catalog, whose root its tables lie below (P2); empty in older records.
    """

    state: Literal["new", "active", "dropping", "dropped"]
    parent_id: str = ""
    catalog_id: str = ""


class NameRecord(Record, frozen=True, kw_only=True):
    """A name in a namespace. No operation deletes it, it is only swapped (N9).

    * `new`: exists if its namespace, read after it, has the id `namespace_id` (N4)
    * `active`: exists if its pointer is not dropped or killed
    * `moving`: the new name of a rename: exists once the name `other` is `moved` with the same `rename_id` (R7)
    * `moved`: the old name of a rename that happened
    * `pending`: written by a transaction: exists once the transaction's record says committed (T6)
    * `dropped`, `free`: does not exist

    `namespace_id` is the namespace that the name belongs to; empty in names that older releases wrote.
    `renamed_by` is the principal of the rename that made this name, at `updated_ms`; None if no rename did.
    `last_event` is the creation, rename or drop that the name stands for, once the name counts (E3); None if the name
    stands for nothing (`moved`, `free`), and in older records. `life` is that of the table it was written for (U1).
    """

    state: Literal["new", "active", "moving", "moved", "pending", "dropped", "free"]
    uuid: str
    kind: Kind
    format: Format = "iceberg"
    namespace_id: str = ""
    other: Identifier | None = None
    other_version: str = ""
    rename_id: str = ""
    transaction: str = ""
    attempt: str = ""
    by: str = ""
    metadata_location: str = ""
    renamed_by: str | None = None
    updated_ms: int = 0
    last_event: CatalogEvent | None = None
    life: str = ""


class Pending(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The head that a transaction prepared; it counts once the transaction's record says committed (T1).

    `places` are the places that it adds (P9).
    """

    transaction: str
    attempt: str
    head: "Head"
    places: tuple[str, ...] = ()


class Head(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The current metadata file, with everything that its receipt contains, so that a successor can write it (C5).

    A register can make the same file current more than once; `registration` distinguishes these times. It is empty for
    a file that a commit wrote, because such a file becomes current once. `spec_id` is the partition spec of new files;
    None for a view, and in older records.
    """

    metadata_location: str
    last_updated_ms: int
    registration: str = ""
    metadata_version: int = 0
    previous_metadata_location: str | None = None
    previous_commit_key: str | None = None
    snapshot_id: int | None = None
    operation: str = ""
    last_sequence_number: int = 0
    refs: dict[str, int] = {}
    spec_id: int | None = None
    source: Source = Source()


class _Bound(Record, frozen=True, kw_only=True):
    """The fields of every record that a name refers to.

    `unbound` and `condemned`: created, its first name (`made_for`) not confirmed. `dropped` keeps its content and the
    name it had (`dropped_as`). `purging` is dropped, and its files are being deleted (U3). `killed`: a create that
    failed, or an orphan that was swept; it never lives again.

    `made_by` is the hash of the request that created it (S2). `uuid` is what names refer to. It equals `table_uuid`,
    the uuid in the metadata, unless a table is registered whose uuid was in use before. `owner` is the name of the
    owner as clients see it, and `owner_id` the principal that owns it.

    `places` are the addresses that it has or had and that were not generated for its uuid (P1); each has a location
    claim. `column_tags` are the tags of columns, by the id of the field in an Iceberg table and otherwise by its name.
    `is_ended`: dropped, and its files are gone or belong to another table; nothing brings it back (P2, P11).

    `last_event` is the event of its drop (E6), which the name had first. `last_change` is the last change of what the
    catalog keeps about it, such as the owner; a commit is no event and keeps it.

    `life` is the id of the undrop that brought it back last; empty in its first life. An unbound record with a life is
    a half-done undrop: it still has the event of its drop, and goes back to `dropped` (U5).

    `swept` is the id of the list of files that maintenance deleted, with which commits are compared (O5); empty if it
    deleted none.
    """

    uuid: str
    table_uuid: str
    state: Literal["unbound", "condemned", "live", "dropped", "purging", "killed"]
    kind: Kind = "table"
    made_for: Identifier | None = None
    made_by: str = ""
    dropped_as: Identifier | None = None
    by: str = ""
    updated_ms: int = 0
    owner: str = ""
    owner_id: str = ""
    tags: dict[str, str] = msgspec.field(default_factory=dict)
    column_tags: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)
    places: tuple[str, ...] = ()
    is_ended: bool = False
    last_event: CatalogEvent | None = None
    last_change: CatalogEvent | None = None
    life: str = ""
    swept: str = ""


PASSED_MAX: Final = 16


class Pointer(_Bound, frozen=True, kw_only=True):
    """Which metadata file of an Iceberg table or view is current.

    `object_id` is the id that grants name: the server chose it, unlike the uuid (A3). Older records have no
    `created_ms` and `created_by`; who changed the table last is in the source of its head.

    `passed` are the commits that the last swap of the head made before the head itself, oldest first, at most
    PASSED_MAX: a batch of commits is one swap. They are proof, as the head is (B3). Who moves the head first writes the
    receipts of all of them (B4); a swap that keeps the head keeps them.
    """

    format: Literal["iceberg"] = "iceberg"
    object_id: str = ""
    created_ms: int = 0
    created_by: str = ""
    head: Head | None = None
    passed: tuple[Head, ...] = ()
    pending: Pending | None = None


class DeltaCommit(msgspec.Struct, frozen=True, kw_only=True):
    """A commit of a Delta table that the catalog accepted, and the staged file that holds it."""

    version: int
    timestamp_ms: int
    file_name: str
    file_size: int
    file_modified_ms: int
    previous_commit_key: str | None = None
    source: Source = Source()


class Uniform(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The Iceberg metadata that a client wrote for a Delta table, and the Delta version that it describes."""

    metadata_location: str
    converted_delta_version: int
    converted_delta_timestamp_ms: int
    base_converted_delta_version: int | None = None


class DeltaTable(_Bound, frozen=True, kw_only=True):
    """A Delta table, or anything else that only the Unity Catalog API calls a table.

    The source of truth of a Delta table is its log; this record holds the tail of it. `last_version` is the newest
    version, 0 for a table that was only created. `commits` are the versions that are not known to be published as
    `_delta_log/{version}.json`, oldest first and without a gap up to `last_version`; the newest one is always kept.
    All versions up to `published` are known to be published (L4).

    `columns` is a JSON list in the form of the classic API, with `position` and `partition_index`. `etag` is new
    whenever something that a client caches changes; a commit that only adds data keeps it, and keeps `changed_ms`.
    `created_source` is the source of version 0; None in older records.
    """

    format: Literal["delta"] = "delta"
    table_type: str = "MANAGED"
    data_source_format: str = "DELTA"
    location: str = ""
    columns: msgspec.Raw = msgspec.Raw(b"[]")
    comment: str | None = None
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    view_definition: str | None = None
    view_dependencies: DependencyList | None = None
    etag: str = ""
    created_ms: int = 0
    created_by: str = ""
    created_source: Source | None = None
    changed_ms: int = 0
    changed_by: str = ""
    last_version: int = 0
    last_commit_ms: int = 0
    published: int = 0
    commits: tuple[DeltaCommit, ...] = ()
    uniform: Uniform | None = None


VolumeType = Literal["MANAGED", "EXTERNAL"]


class Securable(_Bound, frozen=True, kw_only=True):
    """A volume, a function or a registered model. `last_version` is the newest model version that was ever started."""

    format: Literal["unity"] = "unity"
    comment: str | None = None
    location: str = ""
    volume_type: VolumeType | None = None
    function: FunctionDefinition | None = None
    last_version: int = 0
    change: LastChange | None = None
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    changed_by: str = ""


class RegistryEntry(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fields that storage credentials and external locations share."""

    name: str
    id: str
    comment: str | None = None
    tags: dict[str, str] = {}
    owner: str = ""
    owner_id: str = ""
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    changed_by: str = ""


ModelStatus = Literal["PENDING_REGISTRATION", "FAILED_REGISTRATION", "READY"]


class ModelVersion(Record, frozen=True, kw_only=True):
    """A version of a registered model. No operation deletes it; a drop swaps it to `dropped`, like a name (N9)."""

    version: int
    id: str
    state: Literal["live", "dropped"] = "live"
    status: ModelStatus = "PENDING_REGISTRATION"
    source: str = ""
    run_id: str | None = None
    location: str = ""
    comment: str | None = None
    change: LastChange | None = None
    last_event: CatalogEvent | None = None
    created_ms: int = 0
    created_by: str = ""
    changed_ms: int = 0
    changed_by: str = ""


BoundRecord = Pointer | DeltaTable | Securable
"""What a name refers to. The format in the name record says which: it selects the cell and its decoder."""


def drop_of(record: BoundRecord) -> str:
    """The id of the drop that a dropped record is left by, as purge orders name it (U6)."""
    return record.last_event.id if record.last_event else record.by


def head_of(record: BoundRecord) -> Head | None:
    """The current metadata file; None for a record of another format, which has none."""
    return record.head if isinstance(record, Pointer) else None


class DeltaStage(Record, frozen=True, kw_only=True):
    """A reserved location for a managed Delta table that does not exist yet."""

    uuid: str
    identifier: Identifier
    location: str
    created_ms: int
    expires_ms: int
    created_by: str = ""
    owner_id: str = ""


class Failure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A definite refusal, kept so that a replay gets the same answer: the error class, its text and its subject."""

    error: str
    message: str
    subject: Subject | None = None
    public_text: str = ""


class Claim(Record, frozen=True, kw_only=True):
    """An idempotency key claimed by a request (C4, C8).

    `open` while the request runs; `done` with what a replay needs: the failure, or the location and text of the answer.
    `locations` holds every attempted metadata file, `renames` every attempted rename and `events` every event that an
    attempt wrote into a record (E7), oldest first; they only grow.
    `uuid`, `life` and `namespace_id` pin the table, its life (E7) and the namespace for retries.
    """

    state: Literal["open", "done"]
    request_hash: str
    operation: str
    owner: str
    started_ms: int
    uuid: str = ""
    life: str = ""
    namespace_id: str = ""
    renames: tuple[str, ...] = ()
    events: tuple[AttemptedEvent, ...] = ()
    locations: tuple["AttemptedFile", ...] = ()
    location: str = ""
    answer: str = ""
    failure: Failure | None = None


class AttemptedFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A metadata file that an attempt wrote to make it current, with the parts of its receipt's key."""

    metadata_location: str
    last_updated_ms: int
    registration: str = ""


class Participant(msgspec.Struct, frozen=True, kw_only=True):
    """A table of a transaction: its pointer, and its name if the transaction creates it."""

    uuid: str
    identifier: Identifier
    creates: bool = False


class Transaction(Record, frozen=True, kw_only=True):
    """The record that makes a multi-table commit visible, and the claim of a request with a key (T1–T9)."""

    state: Literal["preparing", "committed", "aborted"]
    attempt: str
    request_hash: str
    started_ms: int
    attempt_ms: int
    participants: tuple[Participant, ...] = ()
    failure: Failure | None = None


class Stage(Record, frozen=True, kw_only=True):
    """A staged table that is not committed yet. The commit does not need it; it is only a cross-check.

    `principal_id` is the id of the principal that staged it; empty without authentication.
    `stage_id` is the id that the client chose for it; empty if the uuid is its id.
    """

    table_uuid: str
    identifier: Identifier
    location: str
    created_ms: int
    expires_ms: int
    metadata: msgspec.Raw = msgspec.Raw(b"{}")
    principal_id: str = ""
    stage_id: str = ""
    created_by: str = ""


class PurgeOrder(Record, frozen=True, kw_only=True):
    """An order to delete the files of a table, valid only if the drop with the id `drop` is the one that happened (U6).

    That is the id of the drop's event, or of its request on a store without events.
    `blocked` is the reason why the files stay; empty while they may be deleted.
    """

    uuid: str
    table_uuid: str
    drop: str
    kind: Kind
    identifier: Identifier
    ordered_ms: int
    format: Format = "iceberg"
    blocked: str = ""


_KINDS: Final = (
    errors.BadRequest,
    errors.Invalid,
    errors.Unprocessable,
    errors.Unsupported,
    errors.NotEmpty,
    errors.Conflict,
)
_WITH_SUBJECT: Final = (errors.NotFound, errors.AlreadyExists)

Definite = (*_KINDS, *_WITH_SUBJECT)
"""The errors that a retry gets again: only these are kept in a claim."""


def failure_of(error: errors.SandurError) -> Failure:
    subject = error.subject if isinstance(error, _WITH_SUBJECT) else None
    return Failure(error=type(error).__name__, message=str(error), subject=subject, public_text=error.public_text)


def error_of(failure: Failure) -> errors.SandurError:
    """The error of a stored failure; an unknown class becomes a Conflict with the same text."""
    for kind in _WITH_SUBJECT:
        if kind.__name__ == failure.error and failure.subject is not None:
            return kind(failure.message, subject=failure.subject)
    for plain in _KINDS:
        if plain.__name__ == failure.error:
            error = plain(failure.message)
            error.public_text = failure.public_text
            return error
    return errors.Conflict(failure.message)
