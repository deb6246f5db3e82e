"""What a change makes of the metadata of a Delta table."""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sandur.delta import properties as kept
from sandur.delta.columns import columns_of, decoded, encoded, partition_names, partitioned
from sandur.delta.contract import FEATURE, check_contract, check_domains, check_table_id
from sandur.delta.requests import Change
from sandur.delta.uniform import check_uniform
from sandur.errors import Invalid


class Metadata(NamedTuple):
    """What the catalog knows of a table beside its log."""

    uuid: str
    is_managed: bool
    location: str
    columns: msgspec.Raw
    properties: Mapping[str, str]
    comment: str | None


def check_kind(metadata: Metadata, change: Change) -> None:
    """Only a managed table takes commits, and only an external one says where its log stands."""
    if not metadata.is_managed and (change.commit or change.published is not None):
        raise Invalid("add-commit and set-latest-backfilled-version need a managed table")
    if metadata.is_managed and change.snapshot:
        raise Invalid("update-metadata-snapshot-version needs an external table")


def changed(metadata: Metadata, change: Change, *, waives_deletion_vectors: bool = False) -> Metadata:
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


def _columns(columns: msgspec.Raw, change: Change) -> msgspec.Raw:
    if change.columns is None and change.partition_columns is None:
        return columns
    before = decoded(columns)
    partitions = change.partition_columns
    if change.columns is None:
        return encoded(partitioned(before, partitions or ()))
    if partitions is None:
        partitions = partition_names(before)  # By name, across a change of the columns alone.
    return encoded(columns_of(dict(change.columns), partitions))


def _properties(metadata: Metadata, change: Change) -> Mapping[str, str]:
    if not change.changes_metadata and change.domains is None:
        return metadata.properties
    properties = dict(metadata.properties)
    if change.all_properties is not None:
        check_table_id(change.all_properties, metadata.uuid)
        # The older API knows the configuration alone; what is derived stays, or clients would write past the catalog.
        properties = {**kept.derived(metadata.properties), **change.all_properties}
    if change.protocol:
        properties = {key: value for key, value in properties.items() if not key.startswith(FEATURE)}
        properties |= kept.of_protocol(change.protocol)
    properties |= change.set_properties or {}
    for key in change.removed_properties or ():
        properties.pop(key, None)
    properties |= kept.of_domains(change.domains)
    for domain in change.removed_domains or ():
        properties.pop(kept.checked_domain(domain), None)
    if change.snapshot:
        properties |= kept.of_commit(change.snapshot.last_commit_version, change.snapshot.last_commit_timestamp_ms)
    elif change.commit and change.changes_metadata:
        properties |= kept.of_commit(change.commit.version, change.commit.timestamp)
    return properties


def _check_managed(after: Metadata, change: Change, *, waives_deletion_vectors: bool) -> None:
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
