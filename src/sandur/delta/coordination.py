"""How changes of a Delta table are accepted: the next version, replays, and the metadata after a change (L1–L4)."""

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from sandur.delta import properties as stored
from sandur.delta.columns import columns_from_api, decode_columns, encode_columns, partition_names, with_partitions
from sandur.delta.protocol import FEATURE, check_contract, check_domains, check_table_id
from sandur.delta.requests import CommitFile, DeltaChange, Uniform
from sandur.errors import Exhausted, Invalid, VersionTaken
from sandur.splicing import INT64_MAX

FILE_NAME_MAX: Final = 512

_FORMATS: Final = "delta.universalFormat.enabledFormats"
_FIRST_VERSIONS: Final = frozenset({0, 1})


class Tracked(Protocol):
    """A commit that the catalog tracks."""

    @property
    def version(self) -> int: ...

    @property
    def file_name(self) -> str: ...


R = TypeVar("R", bound=Tracked)


class LogTail(NamedTuple):
    """The tail of a log: the newest version, the version up to which all are published, and the tracked commits."""

    last_version: int
    published: int
    tracked: Sequence[Tracked]


class Verdict(Enum):
    """What to do with a commit."""

    APPEND = "append"
    REPLAY = "replay"
    """It was accepted before: answer with success and change nothing."""
    COMPARE = "compare"
    """Its version is no longer tracked: compare the bytes with the published file (L3)."""


def checked_commit(commit: CommitFile) -> CommitFile:
    """The commit itself; raises Invalid if a field is out of range or the file name is not a plain name."""
    for what, value in (
        ("version", commit.version),
        ("timestamp", commit.timestamp),
        ("file-size", commit.file_size),
        ("file-modification-timestamp", commit.file_modification_timestamp),
    ):
        if not 0 < value <= INT64_MAX:
            raise Invalid(f"commit: {what} must be greater than 0 and have at most 64 bits")
    name = commit.file_name
    if not name or name in {".", ".."} or "/" in name or "\\" in name or len(name) > FILE_NAME_MAX:
        raise Invalid(f"commit: file-name {name[:100]!r} must be the name of one file in _staged_commits")
    if not name.isprintable():
        raise Invalid("commit: file-name contains a character that is not printable")
    return commit


def decide_commit(log: LogTail, version: int, file_name: str) -> Verdict:
    """What to do with a commit of that version and file; raises VersionTaken or Invalid if it cannot be accepted.

    Version 0 is never tracked: after it, 1 is next.
    """
    last = log.last_version
    if version == last + 1:
        return Verdict.APPEND
    if version > last:
        raise Invalid(f"commit version {version}: the latest version is {last}, the next one is {last + 1}")
    found = next((row for row in log.tracked if row.version == version), None)
    if found is None:
        return Verdict.COMPARE
    if found.file_name == file_name:
        return Verdict.REPLAY
    raise VersionTaken(
        f"commit version {version} was accepted before, with the file {found.file_name}; this one is {file_name}"
    )


def newly_published(log: LogTail, reported: int, *, commits: bool) -> int | None:
    """The version that a client reports as published; None if that is already known.

    A report beside the first commit is ignored, because clients send 0. Raises Invalid for an impossible version.
    """
    if reported > log.last_version:
        raise Invalid(f"latest-published-version {reported}: the latest version is {log.last_version}")
    if not log.tracked:
        if commits:
            return None
        raise Invalid(f"latest-published-version {reported}: the table has no commits yet")
    return reported if reported > log.published else None


def check_room(log: LogTail, version: int, published: int, unpublished_max: int) -> None:
    """Raise Exhausted if too many commits would be unpublished."""
    # Every version before the tracked ones is published, otherwise it would be tracked.
    before = min((row.version for row in log.tracked), default=version) - 1
    waiting = version - max(published, before)
    if waiting > unpublished_max:
        raise Exhausted(
            f"{waiting} commits would be unpublished, at most {unpublished_max} are allowed: publish some and report it"
        )


def without_published(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """The commits to keep once all up to `published` are published: the later ones, and always the newest."""
    newest = rows[-1].version if rows else 0
    return tuple(row for row in rows if row.version > published or row.version == newest)


def unpublished(rows: Sequence[R], published: int) -> tuple[R, ...]:
    """The commits that readers cannot find in the log, newest first."""
    return tuple(row for row in reversed(rows) if row.version > published)


def published_name(version: int) -> str:
    """The file name of a published commit in `_delta_log`."""
    return f"{version:020d}.json"


class DeltaMetadata(NamedTuple):
    """The part of a table's record that describes the table, without its log."""

    uuid: str
    is_managed: bool
    location: str
    columns: msgspec.Raw
    properties: Mapping[str, str]
    comment: str | None


def apply_change(
    metadata: DeltaMetadata, change: DeltaChange, *, waives_deletion_vectors: bool = False
) -> DeltaMetadata:
    """The metadata after the change; raises Invalid if it breaks a rule. The order in a request does not matter."""
    if not metadata.is_managed and (change.commit or change.published is not None):
        raise Invalid("add-commit and set-latest-backfilled-version need a managed table")
    if metadata.is_managed and change.snapshot:
        raise Invalid("update-metadata-snapshot-version needs an external table")
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
        partitions = partition_names(before)  # A change of the columns alone keeps the partitioning, by name.
    return encode_columns(columns_from_api(dict(change.columns), partitions))


def _properties(metadata: DeltaMetadata, change: DeltaChange) -> Mapping[str, str]:
    if not change.changes_metadata and change.domains is None:
        return metadata.properties
    properties = _configured(metadata, change) | stored.domain_properties(change.domains)
    for domain in change.removed_domains or ():
        properties.pop(stored.checked_domain(domain), None)
    if change.snapshot:
        return properties | stored.commit_properties(
            change.snapshot.last_commit_version, change.snapshot.last_commit_timestamp_ms
        )
    if change.commit and change.changes_metadata:
        return properties | stored.commit_properties(change.commit.version, change.commit.timestamp)
    return properties


def _configured(metadata: DeltaMetadata, change: DeltaChange) -> dict[str, str]:
    """The properties with the configuration and the protocol of the change."""
    properties = dict(metadata.properties)
    if change.all_properties is not None:
        check_table_id(change.all_properties, metadata.uuid)
        # The older API sends the configuration alone; derived properties stay, or clients would write past the catalog.
        properties = {**stored.derived_properties(metadata.properties), **change.all_properties}
    if change.protocol:
        properties = {key: value for key, value in properties.items() if not key.startswith(FEATURE)}
        properties |= stored.protocol_properties(change.protocol)
    properties |= change.set_properties or {}
    removed = frozenset(change.removed_properties or ())
    return {key: value for key, value in properties.items() if key not in removed}


def _check_managed(after: DeltaMetadata, change: DeltaChange, *, waives_deletion_vectors: bool) -> None:
    """Raise Invalid if the change breaks the contract of managed tables."""
    if change.protocol:
        check_contract(
            change.protocol,
            stored.domains_in(after.properties),
            after.properties,
            waives_deletion_vectors=waives_deletion_vectors,
        )
    elif change.domains:
        check_domains(stored.domains_in(after.properties), stored.features_in(after.properties))
    if change.changes_metadata:
        check_table_id(after.properties, after.uuid)


def check_uniform(
    properties: Mapping[str, str], uniform: Uniform | None, *, location: str, version: int | None
) -> None:
    """Raise Invalid unless the block is present exactly when the properties require it, and describes this table.

    `location` has no trailing slash. `version` is None for a new table.
    """
    formats = {name.strip().lower() for name in properties.get(_FORMATS, "").split(",")}
    if ("iceberg" in formats) != (uniform is not None):
        state = "is missing" if uniform is None else "is not allowed"
        raise Invalid(f"uniform {state}: {_FORMATS} is {properties.get(_FORMATS)!r}")
    if uniform is None:
        return
    iceberg = uniform.iceberg
    # Hadoop writes `file:/…`.
    if not re.sub(r"\Afile:/+", "file:///", iceberg.metadata_location).startswith(f"{location}/"):
        raise Invalid(f"uniform: metadata-location {iceberg.metadata_location} is not below {location}")
    if iceberg.converted_delta_timestamp <= 0:
        raise Invalid("uniform: converted-delta-timestamp must be greater than 0")
    converted = iceberg.converted_delta_version
    if version is None:
        if converted not in _FIRST_VERSIONS or iceberg.base_converted_delta_version is not None:
            raise Invalid("uniform: a new table has converted-delta-version 0 or 1 and no base version")
    elif converted != version:
        raise Invalid(f"uniform: converted-delta-version {converted} is not the commit's version {version}")
