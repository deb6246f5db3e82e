"""Tables for the tests of logins: what the group `readers` may do, and what it may not know."""

from typing import Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog

from tests.server.secured_server import SecuredServer

GROUP: Final = "readers"


def create_tables(server: SecuredServer, **properties: str) -> None:
    """The group may read `sales.open`, read and write `sales.shared`, and must not learn of `sales.closed`."""
    given = {"type": "rest", "uri": server.url, "warehouse": "main", "token": server.admin_token, **properties}
    with load_catalog("admin", **given) as catalog:
        catalog.create_namespace("sales")
        for name in ("open", "shared", "closed"):
            catalog.create_table(f"sales.{name}", pa.schema({"number": pa.int64()})).append(pa.table({"number": [1]}))
    server.create_principal("reader", GROUP)  # A group begins with its first member.
    server.grant(GROUP, ["USE CATALOG"], "catalog", "main")
    server.grant(GROUP, ["USE SCHEMA"], "schema", "main.sales")
    server.grant(GROUP, ["SELECT"], "table", "main.sales.open")
    server.grant(GROUP, ["SELECT", "MODIFY"], "table", "main.sales.shared")
