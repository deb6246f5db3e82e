"""Requests of the Delta API, and the one form in which changes are decided."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple, assert_never

import msgspec

from sandur.delta.properties import CLUSTERING, Domains
from sandur.delta.protocol import Protocol
from sandur.errors import Invalid

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", omit_defaults=True):
    """A struct whose JSON fields are in kebab case."""


class UniformIceberg(_Kebab, frozen=True, kw_only=True):
    metadata_location: str
    converted_delta_version: Number
    converted_delta_timestamp: Number
    base_converted_delta_version: Number | None = None


class Uniform(_Kebab, frozen=True, kw_only=True):
    iceberg: UniformIceberg


class CommitFile(_Kebab, frozen=True, kw_only=True):
    version: Number
    timestamp: Number
    file_name: str
    file_size: Number
    file_modification_timestamp: Number


class StageTable(_Kebab, frozen=True, kw_only=True):
    name: str


class CreateTable(_Kebab, frozen=True, kw_only=True):
    name: str
    location: str
    table_type: Literal["MANAGED", "EXTERNAL"]
    columns: dict[str, object]
    protocol: Protocol
    properties: dict[str, str]
    last_commit_timestamp_ms: Number
    comment: str | None = None
    partition_columns: tuple[str, ...] | None = None
    domain_metadata: Domains | None = None
    uniform: Uniform | None = None


class RenameTable(_Kebab, frozen=True, kw_only=True):
    new_name: str


class ReportMetrics(_Kebab, frozen=True, kw_only=True):
    """Metrics of a commit. Only the table id is checked; `report` is None if nothing is reported."""

    table_id: str
    report: object = None


class _Requirement(_Kebab, frozen=True, tag_field="type"):
    """What must hold for a change to be made."""


class _Action(_Kebab, frozen=True, tag_field="action"):
    """A part of a change."""


class AssertTableUuid(_Requirement, frozen=True, kw_only=True, tag="assert-table-uuid"):
    uuid: str


class AssertEtag(_Requirement, frozen=True, kw_only=True, tag="assert-etag"):
    """The metadata must be what the client has cached."""

    etag: str


class SetProperties(_Action, frozen=True, kw_only=True, tag="set-properties"):
    updates: dict[str, str]


class RemoveProperties(_Action, frozen=True, kw_only=True, tag="remove-properties"):
    removals: tuple[str, ...]


class SetColumns(_Action, frozen=True, kw_only=True, tag="set-columns"):
    columns: dict[str, object]


class SetPartitionColumns(_Action, frozen=True, kw_only=True, tag="set-partition-columns"):
    partition_columns: tuple[str, ...]


class SetTableComment(_Action, frozen=True, kw_only=True, tag="set-table-comment"):
    """Set the comment; null removes it, which only a commit may do: Spark's RESTORE sends it."""

    comment: str | None


class SetProtocol(_Action, frozen=True, kw_only=True, tag="set-protocol"):
    protocol: Protocol


class SetDomainMetadata(_Action, frozen=True, kw_only=True, tag="set-domain-metadata"):
    updates: Domains


class RemoveDomainMetadata(_Action, frozen=True, kw_only=True, tag="remove-domain-metadata"):
    domains: tuple[str, ...]


class AddCommit(_Action, frozen=True, kw_only=True, tag="add-commit"):
    """Accept a commit whose file is staged."""

    commit: CommitFile
    uniform: Uniform | None = None


class SetLatestBackfilledVersion(_Action, frozen=True, kw_only=True, tag="set-latest-backfilled-version"):
    """Report the version up to which all commits are published."""

    latest_published_version: Number


class UpdateSnapshotVersion(_Action, frozen=True, kw_only=True, tag="update-metadata-snapshot-version"):
    """Report which commit of an external table changed its metadata last."""

    last_commit_version: Number
    last_commit_timestamp_ms: Number


Requirement = AssertTableUuid | AssertEtag
Update = (
    SetProperties
    | RemoveProperties
    | SetColumns
    | SetPartitionColumns
    | SetTableComment
    | SetProtocol
    | SetDomainMetadata
    | RemoveDomainMetadata
    | AddCommit
    | SetLatestBackfilledVersion
    | UpdateSnapshotVersion
)


class UpdateTable(_Kebab, frozen=True, kw_only=True):
    """Change a table if the requirements hold: all updates or none; their order does not matter."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()


class Comment(NamedTuple):
    """A comment to set; None removes it."""

    text: str | None


_BESIDE_METADATA: Final = frozenset({"asserted_uuid", "asserted_etag", "domains", "commit", "uniform", "published"})


class DeltaChange(NamedTuple):
    """A change of a table; None where it changes nothing.

    `all_properties` replaces the whole configuration, as the older commit API does.
    """

    asserted_uuid: str
    asserted_etag: str | None = None
    columns: Mapping[str, object] | None = None
    partition_columns: Sequence[str] | None = None
    protocol: Protocol | None = None
    set_properties: Mapping[str, str] | None = None
    removed_properties: Sequence[str] | None = None
    all_properties: Mapping[str, str] | None = None
    domains: Domains | None = None
    removed_domains: Sequence[str] | None = None
    comment: Comment | None = None
    snapshot: UpdateSnapshotVersion | None = None
    commit: CommitFile | None = None
    uniform: Uniform | None = None
    published: int | None = None

    @property
    def changes_metadata(self) -> bool:
        """Whether clients must reload the table; row tracking alone changes with every commit and does not count."""
        parts = self._asdict().items()
        is_metadata = any(value is not None for name, value in parts if name not in _BESIDE_METADATA)
        return is_metadata or (self.domains is not None and CLUSTERING in self.domains.names)


def parse_change(request: UpdateTable) -> DeltaChange:
    """The change that a request describes; raises Invalid if the request is not well-formed."""
    if not request.updates:
        raise Invalid("at least one update is required")
    _check_once("requirement", request.requirements)
    _check_once("update", request.updates)
    uuid = next((found.uuid for found in request.requirements if isinstance(found, AssertTableUuid)), None)
    if uuid is None:
        raise Invalid("the requirement assert-table-uuid is required")
    etag = next((found.etag for found in request.requirements if isinstance(found, AssertEtag)), None)
    change = DeltaChange(asserted_uuid=uuid.lower(), asserted_etag=etag)
    for update in request.updates:
        if isinstance(update, SetDomainMetadata) and not update.updates.names:
            raise Invalid("set-domain-metadata needs at least one domain in updates")
        change = _with(change, update)
    if change.comment and change.comment.text is None and not change.commit:
        raise Invalid("set-table-comment needs a comment; null is allowed only together with add-commit")
    _check_overlap("set-properties and remove-properties", change.set_properties, change.removed_properties)
    domains = dict.fromkeys(change.domains.names) if change.domains else None
    _check_overlap("set-domain-metadata and remove-domain-metadata", domains, change.removed_domains)
    return change


def _with(change: DeltaChange, update: Update) -> DeltaChange:  # noqa: C901, PLR0911 - one line per action
    match update:
        case SetProperties():
            return change._replace(set_properties=update.updates)
        case RemoveProperties():
            return change._replace(removed_properties=update.removals)
        case SetColumns():
            return change._replace(columns=update.columns)
        case SetPartitionColumns():
            return change._replace(partition_columns=update.partition_columns)
        case SetTableComment():
            return change._replace(comment=Comment(update.comment))
        case SetProtocol():
            return change._replace(protocol=update.protocol)
        case SetDomainMetadata():
            return change._replace(domains=update.updates)
        case RemoveDomainMetadata():
            return change._replace(removed_domains=update.domains)
        case AddCommit():
            return change._replace(commit=update.commit, uniform=update.uniform)
        case SetLatestBackfilledVersion():
            return change._replace(published=update.latest_published_version)
        case UpdateSnapshotVersion():
            return change._replace(snapshot=update)
        case _:
            assert_never(update)


def _check_once(what: str, items: Sequence[Requirement | Update]) -> None:
    seen: set[type] = set()
    for item in items:
        if type(item) in seen:
            tag = item.__struct_config__.tag
            raise Invalid(f"a request may contain at most one {what} {tag}")
        seen.add(type(item))


def _check_overlap(what: str, one: Mapping[str, object] | None, other: Sequence[str] | None) -> None:
    if both := sorted(set(one or ()) & set(other or ())):
        raise Invalid(f"{what} overlap: {', '.join(both)}")
