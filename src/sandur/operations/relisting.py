"""Which commits change what lists show of a table: those that only add data do not, and leave the index alone."""

from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata


def changes_list(before: TableMetadata | ViewMetadata, after: TableMetadata | ViewMetadata) -> bool:
    """Whether an entry made of `after` would differ from one made of `before`, but for the time of the change."""
    if isinstance(before, TableMetadata) and isinstance(after, TableMetadata):
        return _shown(before) != _shown(after)
    return True


def _shown(metadata: TableMetadata) -> tuple[object, ...]:
    return (metadata.current_schema_id, metadata.default_spec_id, metadata.location, metadata.properties)
