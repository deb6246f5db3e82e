"""What a commit means: the next metadata of a table, from its base, the requirements and the updates."""

from collections.abc import Sequence
from typing import assert_never

from sandur.errors import Invalid
from sandur.iceberg import snapshot_updates, table_updates
from sandur.iceberg import updates as u
from sandur.iceberg.draft import Draft, empty_metadata
from sandur.iceberg.requirements import Requirement, check_requirements
from sandur.iceberg.table_build import finished
from sandur.iceberg.table_metadata import FORMAT_VERSION_MAX, TableMetadata

FORMAT_VERSION_DEFAULT = 2


def next_metadata(
    base: TableMetadata | None, requirements: Sequence[Requirement], updates: Sequence[u.Update], *, now_ms: int
) -> TableMetadata:
    """The metadata after a commit, or `base` itself if the commit changes nothing.

    No base means that the commit creates the table. Raises `Conflict` if a requirement fails or a value of the request
    is stale (load again, decide again), and `Invalid` if the request breaks a rule. The new metadata has no location
    yet; that of `base` becomes the newest entry of the metadata log.
    """
    check_requirements(base, requirements)
    draft = _draft_of_new_table(updates) if base is None else Draft(metadata=base)
    for update in updates:
        draft = applied(draft, update, now_ms=now_ms)
    if base is not None and not draft.is_changed:
        return base
    return finished(draft, base, now_ms=now_ms)


def _draft_of_new_table(updates: Sequence[u.Update]) -> Draft:
    wanted = (update.format_version for update in updates if isinstance(update, u.UpgradeFormatVersion))
    return Draft(metadata=empty_metadata(supported_format_version(next(wanted, FORMAT_VERSION_DEFAULT))), is_new=True)


def supported_format_version(version: int) -> int:
    """`version`, refused with `Invalid` if tables of it cannot be created."""
    if not 1 <= version <= FORMAT_VERSION_MAX:
        raise Invalid(f"Unsupported format version: v{version} (supported: v{FORMAT_VERSION_MAX})")
    return version


def applied(draft: Draft, update: u.Update, *, now_ms: int) -> Draft:  # noqa: C901, PLR0911, PLR0912 # One line per update.
    """The draft after one update."""
    match update:
        case u.AssignUuid():
            return table_updates.assign_uuid(draft, update.uuid)
        case u.UpgradeFormatVersion():
            return table_updates.upgrade_format_version(draft, update.format_version)
        case u.AddSchema():
            return table_updates.add_schema(draft, update.schema)
        case u.SetCurrentSchema():
            return table_updates.set_current_schema(draft, update.schema_id)
        case u.AddPartitionSpec():
            return table_updates.add_spec(draft, update.spec)
        case u.SetDefaultSpec():
            return table_updates.set_default_spec(draft, update.spec_id)
        case u.AddSortOrder():
            return table_updates.add_sort_order(draft, update.sort_order)
        case u.SetDefaultSortOrder():
            return table_updates.set_default_sort_order(draft, update.sort_order_id)
        case u.AddSnapshot():
            return snapshot_updates.add_snapshot(draft, update.snapshot)
        case u.SetSnapshotRef():
            return snapshot_updates.set_snapshot_ref(draft, update.ref_name, update.ref, now_ms=now_ms)
        case u.RemoveSnapshotRef():
            return snapshot_updates.remove_snapshot_ref(draft, update.ref_name)
        case u.RemoveSnapshots():
            return snapshot_updates.remove_snapshots(draft, update.snapshot_ids)
        case u.SetLocation():
            return table_updates.set_location(draft, update.location)
        case u.SetProperties():
            return table_updates.set_properties(draft, update.updates)
        case u.RemoveProperties():
            return table_updates.remove_properties(draft, update.removals)
        case u.SetStatistics():
            return table_updates.set_statistics(draft, update.statistics)
        case u.RemoveStatistics():
            return table_updates.remove_statistics(draft, update.snapshot_id)
        case u.SetPartitionStatistics():
            return table_updates.set_partition_statistics(draft, update.partition_statistics)
        case u.RemovePartitionStatistics():
            return table_updates.remove_partition_statistics(draft, update.snapshot_id)
        case u.RemovePartitionSpecs():
            return table_updates.remove_specs(draft, update.spec_ids)
        case u.RemoveSchemas():
            return table_updates.remove_schemas(draft, update.schema_ids)
        case u.AddEncryptionKey():
            return table_updates.add_encryption_key(draft, update.encryption_key)
        case u.RemoveEncryptionKey():
            return table_updates.remove_encryption_key(draft, update.key_id)
        case u.AddViewVersion() | u.SetCurrentViewVersion():
            raise Invalid(f"Cannot apply update {u.action_of(update)} to a table")
        case _:
            assert_never(update)
