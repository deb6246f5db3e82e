"""How changes of a Delta table are accepted: the next version, replays, and the metadata after a change (L1–L4)."""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from sandur.delta import properties as kept
from sandur.delta.columns import columns_from_api, decode_columns, encode_columns, partition_names, with_partitions
from sandur.delta.protocol import FEATURE, check_contract, check_domains, check_table_id
from sandur.delta.requests import CommitFile, DeltaChange, Uniform
from sandur.errors import Exhausted, Invalid, VersionTaken

FILE_NAME_MAX: Final = 512


class Tracked(Protocol):
    """A commit that the catalog keeps."""

    @property
    def version(self) -> int: ...

    @property
    def file_name(self) -> str: ...


R = TypeVar("R", bound=Tracked)


class LogTail(NamedTuple):
    """The tail of a table's log: the newest version, up to where all are published, and what is kept, oldest first."""

    last_version: int
    published: int
    tracked: Sequence[Tracked]


class Verdict(Enum):
    """What becomes of a commit."""

    APPEND = "append"
    REPLAY = "replay"
    """It was accepted before: nothing is done, and that is a success."""
    COMPARE = "compare"
    """It was accepted or not, and nobody remembers: only the bytes of the published file can tell (L3)."""


def checked_commit(commit: CommitFile) -> CommitFile:
    """The commit itself; Invalid when it cannot be one."""
    for what, value in (
        ("version", commit.version),
        ("timestamp", commit.timestamp),
        ("file-size", commit.file_size),
        ("file-modification-timestamp", commit.file_modification_timestamp),
    ):
        if value <= 0:
            raise Invalid(f"commit: {what} must be greater than 0, found {value}")
    name = commit.file_name
    if not name or name in {".", ".."} or "/" in name or "\\" in name or len(name) > FILE_NAME_MAX:
        raise Invalid(f"commit: file-name {name[:100]!r} must be the name of one file in _staged_commits")
    if not name.isprintable():
        raise Invalid("commit: file-name holds a character that cannot be printed")
    return commit


def decide_commit(log: LogTail, version: int, file_name: str) -> Verdict:
    """What becomes of a commit with that version and file; VersionTaken or Invalid when it cannot be.

    Nothing is tracked while there is only version 0: then 1 is next.
    """
    last = log.last_version
    if version == last + 1:
        return Verdict.APPEND
    if version > last:
        raise Invalid(f"commit version {version}: the latest version is {last}, so that {last + 1} is next")
    found = next((row for row in log.tracked if row.version == version), None)
    if found is None:
        return Verdict.COMPARE
    if found.file_name == file_name:
        return Verdict.REPLAY
    raise VersionTaken(
        f"commit version {version} was accepted before, with the file {found.file_name}; this one is {file_name}"
    )


def newly_published(log: LogTail, reported: int, *, commits: bool) -> int | None:
    """Up to where the client says that everything is published, as far as it says something new; None otherwise.

    What is said together with the first commit is not looked at: clients send 0. Invalid for what cannot be.
    """
    if reported > log.last_version:
        raise Invalid(f"latest-published-version {reported}: the latest version is {log.last_version}")
    if not log.tracked:
        if commits:
            return None
        raise Invalid(f"latest-published-version {reported}: the table has no commits yet")
    return reported if reported > log.published else None


def check_room(log: LogTail, version: int, published: int, unpublished_max: int) -> None:
    """Exhausted when too many commits would wait to be published."""
    # Everything before what is tracked was published, or it would be tracked.
    before = min((row.version for row in log.tracked), default=version) - 1
    waiting = version - max(published, before)
    if waiting > unpublished_max:
        raise Exhausted(
            f"{waiting} commits would not be published, at most {unpublished_max} may be: publish them, and say so"
        )


def without_published(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """What is kept of the commits once all up to `published` are: the others, and the newest in any case."""
    newest = rows[-1].version if rows else 0
    return tuple(row for row in rows if row.version > published or row.version == newest)


def unpublished(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """What readers have to be told of, newest first."""
    return tuple(row for row in reversed(rows) if row.version > published)


def published_name(version: int) -> str:
    """The file of a published commit, below `_delta_log`."""
    return f"{version:020d}.json"


class DeltaMetadata(NamedTuple):
    """What the catalog knows of a table beside its log."""

    uuid: str
    is_managed: bool
    location: str
    columns: msgspec.Raw
    properties: Mapping[str, str]
    comment: str | None


def check_kind(metadata: DeltaMetadata, change: DeltaChange) -> None:
    """Only a managed table takes commits, and only an external one says where its log stands."""
    if not metadata.is_managed and (change.commit or change.published is not None):
        raise Invalid("add-commit and set-latest-backfilled-version need a managed table")
    if metadata.is_managed and change.snapshot:
        raise Invalid("update-metadata-snapshot-version needs an external table")


def apply_change(
    metadata: DeltaMetadata, change: DeltaChange, *, waives_deletion_vectors: bool = False
) -> DeltaMetadata:
    """The metadata after the change; Invalid when the table would not be one. The order of a request means nothing."""
    check_kind(metadata, change)
    properties = _properties(metadata, change)
    columns = _columns(metadata.columns, change)
    after = metadata._replace(columns=columns, properties=properties)
    if change.comment:
        after = after._replace(comment=change.comment.text)
    if metadata.is_managed:
        _check_managed(after, change, waives_deletion_vectors=waives_deletion_vectors)
    if change.commit:
        check_uniform(properties, change.uniform, location=metadata.location, version=change.commit.version)
    return after


def _columns(columns: msgspec.Raw, change: DeltaChange) -> msgspec.Raw:
    if change.columns is None and change.partition_columns is None:
        return columns
    before = decode_columns(columns)
    partitions = change.partition_columns
    if change.columns is None:
        return encode_columns(with_partitions(before, partitions or ()))
    if partitions is None:
        partitions = partition_names(before)  # By name, across a change of the columns alone.
    return encode_columns(columns_from_api(dict(change.columns), partitions))


def _properties(metadata: DeltaMetadata, change: DeltaChange) -> Mapping[str, str]:
    if not change.changes_metadata and change.domains is None:
        return metadata.properties
    properties = dict(metadata.properties)
    if change.all_properties is not None:
        check_table_id(change.all_properties, metadata.uuid)
        # The older API knows the configuration alone; what is derived stays, or clients would write past the catalog.
        properties = {**kept.derived_properties(metadata.properties), **change.all_properties}
    if change.protocol:
        properties = {key: value for key, value in properties.items() if not key.startswith(FEATURE)}
        properties |= kept.protocol_properties(change.protocol)
    properties |= change.set_properties or {}
    for key in change.removed_properties or ():
        properties.pop(key, None)
    properties |= kept.domain_properties(change.domains)
    for domain in change.removed_domains or ():
        properties.pop(kept.checked_domain(domain), None)
    if change.snapshot:
        properties |= kept.commit_properties(
            change.snapshot.last_commit_version, change.snapshot.last_commit_timestamp_ms
        )
    elif change.commit and change.changes_metadata:
        properties |= kept.commit_properties(change.commit.version, change.commit.timestamp)
    return properties


def _check_managed(after: DeltaMetadata, change: DeltaChange, *, waives_deletion_vectors: bool) -> None:
    """The contract holds after the change as it did before."""
    if change.protocol:
        check_contract(
            change.protocol,
            kept.domains_in(after.properties),
            after.properties,
            waives_deletion_vectors=waives_deletion_vectors,
        )
    elif change.domains:
        check_domains(kept.domains_in(after.properties), kept.features_in(after.properties))
    if change.changes_metadata:
        check_table_id(after.properties, after.uuid)


_FORMATS: Final = "delta.universalFormat.enabledFormats"
_FIRST_VERSIONS: Final = frozenset({0, 1})


def has_iceberg_metadata(properties: Mapping[str, str]) -> bool:
    return "iceberg" in {name.strip().lower() for name in properties.get(_FORMATS, "").split(",")}


def check_uniform(
    properties: Mapping[str, str], uniform: Uniform | None, *, location: str, version: int | None
) -> None:
    """The block is there exactly when the properties ask for it, and speaks of this table; `version` None: it is new.

    `location` has no slash at its end.
    """
    if has_iceberg_metadata(properties) != (uniform is not None):
        state = "is missing" if uniform is None else "is not allowed"
        raise Invalid(f"uniform {state}: {_FORMATS} is {properties.get(_FORMATS)!r}")
    if uniform is None:
        return
    iceberg = uniform.iceberg
    if not iceberg.metadata_location.startswith(f"{location}/"):
        raise Invalid(f"uniform: metadata-location {iceberg.metadata_location} is not below {location}")
    if iceberg.converted_delta_timestamp <= 0:
        raise Invalid("uniform: converted-delta-timestamp must be greater than 0")
    converted = iceberg.converted_delta_version
    if version is None:
        if converted not in _FIRST_VERSIONS or iceberg.base_converted_delta_version is not None:
            raise Invalid("uniform: a new table has converted-delta-version 0 or 1 and no base version")
    elif converted != version:
        raise Invalid(f"uniform: converted-delta-version {converted} is not the commit's version {version}")
