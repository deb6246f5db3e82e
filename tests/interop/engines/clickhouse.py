"""Settings that only ClickHouse needs."""

from tests.interop.server_address import Served


def engine_at(served: Served, schema: str, table: str) -> str:
    """The engine of a new table, which says where it lies, as an address of the object store."""
    assert served.s3 is not None, "ClickHouse makes tables on object stores only"
    place = f"{served.s3.endpoint}/sandur/{served.server.folder.name}/tables/default/default/main/{schema}/{table}/"
    keys = f", '{served.s3.access_key_id}', '{served.s3.secret_access_key}'" if served.has_keys else ""
    return f"IcebergS3('{place}'{keys})"
