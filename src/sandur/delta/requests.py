"""What clients ask of a Delta table: the requests of the Delta API, and the one form in which they are decided."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple, assert_never

import msgspec

from sandur.delta.properties import CLUSTERING, Domains
from sandur.delta.protocol import Protocol
from sandur.errors import Invalid

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]


class _Kebab(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Fields are spelled with dashes."""


class UniformIceberg(_Kebab, frozen=True, kw_only=True):
    """The Iceberg metadata that shows a version of the table."""

    metadata_location: str
    converted_delta_version: Number
    converted_delta_timestamp: Number
    base_converted_delta_version: Number | None = None


class Uniform(_Kebab, frozen=True, kw_only=True):
    """What was written for readers of other formats."""

    iceberg: UniformIceberg


class CommitFile(_Kebab, frozen=True, kw_only=True):
    """A commit: its version, and the staged file that holds it."""

    version: Number
    timestamp: Number
    file_name: str
    file_size: Number
    file_modification_timestamp: Number


class StageTable(_Kebab, frozen=True, kw_only=True):
    """Ask for a place for a table."""

    name: str


class CreateTable(_Kebab, frozen=True, kw_only=True):
    """Ask for a table whose first commit is written."""

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
    """Ask for another name in the same schema."""

    new_name: str


class ReportMetrics(_Kebab, frozen=True, kw_only=True):
    """What a commit cost; only the table is looked at."""

    table_id: str
    report: object = None


class AssertTableUuid(_Kebab, frozen=True, kw_only=True, tag_field="type", tag="assert-table-uuid"):
    """The table must be this very one."""

    uuid: str


class AssertEtag(_Kebab, frozen=True, kw_only=True, tag_field="type", tag="assert-etag"):
    """Its metadata must be what the client saw."""

    etag: str


class SetProperties(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-properties"):
    """Set some properties and leave the rest."""

    updates: dict[str, str]


class RemoveProperties(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="remove-properties"):
    """Take some properties away."""

    removals: tuple[str, ...]


class SetColumns(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-columns"):
    """Other columns."""

    columns: dict[str, object]


class SetPartitionColumns(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-partition-columns"):
    """Partition by other columns."""

    partition_columns: tuple[str, ...]


class SetTableComment(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-table-comment"):
    """Another comment; null takes it away, as Spark's RESTORE does."""

    comment: str | None = None


class SetProtocol(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-protocol"):
    """Another protocol, in full."""

    protocol: Protocol


class SetDomainMetadata(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-domain-metadata"):
    """Other metadata of some domains."""

    updates: Domains


class RemoveDomainMetadata(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="remove-domain-metadata"):
    """Take the metadata of some domains away."""

    domains: tuple[str, ...]


class AddCommit(_Kebab, frozen=True, kw_only=True, tag_field="action", tag="add-commit"):
    """Accept a commit that is staged."""

    commit: CommitFile
    uniform: Uniform | None = None


class SetLatestBackfilledVersion(
    _Kebab, frozen=True, kw_only=True, tag_field="action", tag="set-latest-backfilled-version"
):
    """Say up to which version all commits are published."""

    latest_published_version: Number


class UpdateSnapshotVersion(
    _Kebab, frozen=True, kw_only=True, tag_field="action", tag="update-metadata-snapshot-version"
):
    """Say which commit of an external table changed its metadata last."""

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
    """Change a table, if what is required holds; all of it or nothing, in whatever order it stands here."""

    requirements: tuple[Requirement, ...] = ()
    updates: tuple[Update, ...] = ()


class Comment(NamedTuple):
    """A comment to be set; None takes it away."""

    text: str | None


class DeltaChange(NamedTuple):
    """A request to change a table, each thing at most once; None where it asks for nothing.

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
        """Whether clients have to load the table anew; row tracking alone moves with every commit."""
        return any(
            asked is not None
            for asked in (
                self.columns,
                self.partition_columns,
                self.protocol,
                self.set_properties,
                self.removed_properties,
                self.all_properties,
                self.removed_domains,
                self.comment,
                self.snapshot,
            )
        ) or (self.domains is not None and CLUSTERING in self.domains.names)


def parse_change(request: UpdateTable) -> DeltaChange:
    """The request in the form in which it is decided; Invalid when it breaks a rule of shape."""
    if not request.updates:
        raise Invalid("at least one update is required")
    _check_once("requirement", request.requirements)
    _check_once("update", request.updates)
    uuid = next((one.uuid for one in request.requirements if isinstance(one, AssertTableUuid)), None)
    if uuid is None:
        raise Invalid("the requirement assert-table-uuid is required")
    etag = next((one.etag for one in request.requirements if isinstance(one, AssertEtag)), None)
    change = DeltaChange(asserted_uuid=uuid.lower(), asserted_etag=etag)
    for update in request.updates:
        change = _with(change, update)
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


def _check_once(what: str, things: Sequence[Requirement | Update]) -> None:
    seen: set[type] = set()
    for thing in things:
        if type(thing) in seen:
            tag = thing.__struct_config__.tag
            raise Invalid(f"at most one {what} {tag} is allowed in a request")
        seen.add(type(thing))


def _check_overlap(what: str, one: Mapping[str, object] | None, other: Sequence[str] | None) -> None:
    if both := sorted(set(one or ()) & set(other or ())):
        raise Invalid(f"{what} overlap: {', '.join(both)}")
