"""The cases of tables, views and scans."""

from typing import Final

from sandur.v1 import scans_pb2, tables_pb2
from sandur.v1.common_pb2 import Page
from tests.grpc.case import Case, Rest, change, metadata, named, namespace
from tests.grpc.stubs import body
from tests.server.requests import add_snapshot, create_table, create_view, rename, set_properties

TABLES: Final = (
    Case(
        "create a table",
        lambda side: Rest("POST", side.tables, create_table("t")),
        "Tables.Create",
        lambda side: tables_pb2.CreateTableRequest(namespace=namespace(side), body=body(create_table("t"))),
    ),
    Case(
        "create a table that exists",
        lambda side: Rest("POST", side.tables, create_table("t")),
        "Tables.Create",
        lambda side: tables_pb2.CreateTableRequest(namespace=namespace(side), body=body(create_table("t"))),
        "ALREADY_EXISTS",
        409,
    ),
    Case(
        "create a table with an invalid schema",
        lambda side: Rest("POST", side.tables, {"name": "x", "schema": {"type": "struct"}}),
        "Tables.Create",
        lambda side: tables_pb2.CreateTableRequest(
            namespace=namespace(side), body=body({"name": "x", "schema": {"type": "struct"}})
        ),
        "INVALID_ARGUMENT",
        400,
    ),
    Case(
        "create a table in a namespace that does not exist",
        lambda side: Rest("POST", f"{side.namespaces}/none/tables", create_table("t")),
        "Tables.Create",
        lambda side: tables_pb2.CreateTableRequest(namespace=namespace(side, "none"), body=body(create_table("t"))),
        "NOT_FOUND",
        404,
    ),
    Case(
        "load a table",
        lambda side: Rest("GET", f"{side.tables}/t"),
        "Tables.Get",
        lambda side: tables_pb2.GetTableRequest(table=named(side, "t")),
    ),
    Case(
        "load a table that does not exist",
        lambda side: Rest("GET", f"{side.tables}/none"),
        "Tables.Get",
        lambda side: tables_pb2.GetTableRequest(table=named(side, "none")),
        "NOT_FOUND",
        404,
    ),
    Case(
        "commit a snapshot",
        lambda side: Rest("POST", f"{side.tables}/t", add_snapshot(metadata(side))),
        "Tables.Commit",
        lambda side: tables_pb2.CommitTableRequest(table=named(side, "t"), body=body(add_snapshot(metadata(side)))),
    ),
    Case(
        "commit on a snapshot that is no longer current",
        lambda side: Rest("POST", f"{side.tables}/t", add_snapshot(metadata(side), snapshot_id=7)),
        "Tables.Commit",
        lambda side: tables_pb2.CommitTableRequest(
            table=named(side, "t"), body=body(add_snapshot(metadata(side), snapshot_id=7))
        ),
        "ABORTED",
        409,
    ),
    Case(
        "commit what is not JSON",
        lambda side: Rest("POST", f"{side.tables}/t", b"{"),
        "Tables.Commit",
        lambda side: tables_pb2.CommitTableRequest(table=named(side, "t"), body=b"{"),
        "INVALID_ARGUMENT",
        400,
    ),
    Case(
        "commit to a table that does not exist",
        lambda side: Rest("POST", f"{side.tables}/none", set_properties(a="b")),
        "Tables.Commit",
        lambda side: tables_pb2.CommitTableRequest(table=named(side, "none"), body=body(set_properties(a="b"))),
        "NOT_FOUND",
        404,
    ),
    Case(
        "load only the snapshots of branches and tags",
        lambda side: Rest("GET", f"{side.tables}/t", query={"snapshots": "refs"}),
        "Tables.Get",
        lambda side: tables_pb2.GetTableRequest(table=named(side, "t"), snapshots=tables_pb2.SNAPSHOT_SELECTION_REFS),
    ),
    Case(
        "list snapshots",
        lambda side: Rest("GET", f"{side.tables}/t/snapshots"),
        "Tables.ListSnapshots",
        lambda side: tables_pb2.ListSnapshotsRequest(table=named(side, "t")),
    ),
    Case(
        "list schemas",
        lambda side: Rest("GET", f"{side.tables}/t/schemas"),
        "Tables.ListSchemas",
        lambda side: tables_pb2.ListSchemasRequest(table=named(side, "t")),
    ),
    Case(
        "list partition specs",
        lambda side: Rest("GET", f"{side.tables}/t/partition-specs"),
        "Tables.ListPartitionSpecs",
        lambda side: tables_pb2.ListPartitionSpecsRequest(table=named(side, "t")),
    ),
    Case(
        "get credentials where none are needed",
        lambda side: Rest("GET", f"{side.tables}/t/credentials"),
        "Tables.GetCredentials",
        lambda side: tables_pb2.GetCredentialsRequest(table=named(side, "t")),
    ),
    Case(
        "commit a transaction",
        lambda side: Rest("POST", f"/v1/{side.catalog}/transactions/commit", change("t", e="f")),
        "Tables.CommitTransaction",
        lambda side: tables_pb2.CommitTransactionRequest(catalog=side.catalog, body=body(change("t", e="f"))),
    ),
    Case(
        "commit a transaction with a table that does not exist",
        lambda side: Rest("POST", f"/v1/{side.catalog}/transactions/commit", change("none", e="f")),
        "Tables.CommitTransaction",
        lambda side: tables_pb2.CommitTransactionRequest(catalog=side.catalog, body=body(change("none", e="f"))),
        "NOT_FOUND",
        404,
    ),
    Case(
        "rename a table",
        lambda side: Rest("POST", f"/v1/{side.catalog}/tables/rename", rename("t", "u")),
        "Tables.Rename",
        lambda side: tables_pb2.RenameTableRequest(source=named(side, "t"), destination=named(side, "u")),
    ),
    Case(
        "rename a table that does not exist",
        lambda side: Rest("POST", f"/v1/{side.catalog}/tables/rename", rename("t", "u")),
        "Tables.Rename",
        lambda side: tables_pb2.RenameTableRequest(source=named(side, "t"), destination=named(side, "u")),
        "NOT_FOUND",
        404,
    ),
    Case(
        "list tables",
        lambda side: Rest("GET", side.tables),
        "Tables.List",
        lambda side: tables_pb2.ListTablesRequest(namespace=namespace(side)),
    ),
    Case(
        "list a page with an invalid token",
        lambda side: Rest("GET", side.tables, query={"pageToken": "x"}),
        "Tables.List",
        lambda side: tables_pb2.ListTablesRequest(namespace=namespace(side), page=Page(token="x")),  # noqa: S106
        "INVALID_ARGUMENT",
        400,
    ),
    Case(
        "drop a table",
        lambda side: Rest("DELETE", f"{side.tables}/u"),
        "Tables.Drop",
        lambda side: tables_pb2.DropTableRequest(table=named(side, "u")),
    ),
    Case(
        "drop a table that does not exist",
        lambda side: Rest("DELETE", f"{side.tables}/u", query={"purgeRequested": "true"}),
        "Tables.Drop",
        lambda side: tables_pb2.DropTableRequest(table=named(side, "u"), purge=True),
        "NOT_FOUND",
        404,
    ),
    Case(
        "register a table",
        lambda side: Rest(
            "POST",
            f"{side.namespaces}/ns/register",
            {"name": "v", "metadata-location": side.answers["create a table"]["metadata-location"]},
        ),
        "Tables.Register",
        lambda side: tables_pb2.RegisterTableRequest(
            table=named(side, "v"), metadata_location=side.answers["create a table"]["metadata-location"]
        ),
    ),
    Case(
        "stage a table",
        lambda side: Rest("POST", side.tables, create_table("staged", stage_create=True)),
        "Tables.Stage",
        lambda side: tables_pb2.StageTableRequest(namespace=namespace(side), body=body(create_table("staged"))),
    ),
)

VIEWS: Final = (
    Case(
        "create a view",
        lambda side: Rest("POST", side.views, create_view("w")),
        "Views.Create",
        lambda side: tables_pb2.CreateViewRequest(namespace=namespace(side), body=body(create_view("w"))),
    ),
    Case(
        "load a view",
        lambda side: Rest("GET", f"{side.views}/w"),
        "Views.Get",
        lambda side: tables_pb2.GetViewRequest(view=named(side, "w")),
    ),
    Case(
        "load a table as a view",
        lambda side: Rest("GET", f"{side.views}/v"),
        "Views.Get",
        lambda side: tables_pb2.GetViewRequest(view=named(side, "v")),
        "NOT_FOUND",
        404,
    ),
    Case(
        "replace a view",
        lambda side: Rest("POST", f"{side.views}/w", set_properties(a="b")),
        "Views.Replace",
        lambda side: tables_pb2.ReplaceViewRequest(view=named(side, "w"), body=body(set_properties(a="b"))),
    ),
    Case(
        "rename a view",
        lambda side: Rest("POST", f"/v1/{side.catalog}/views/rename", rename("w", "x")),
        "Views.Rename",
        lambda side: tables_pb2.RenameViewRequest(source=named(side, "w"), destination=named(side, "x")),
    ),
    Case(
        "list views",
        lambda side: Rest("GET", side.views),
        "Views.List",
        lambda side: tables_pb2.ListViewsRequest(namespace=namespace(side)),
    ),
    Case(
        "drop a view",
        lambda side: Rest("DELETE", f"{side.views}/x"),
        "Views.Drop",
        lambda side: tables_pb2.DropViewRequest(view=named(side, "x")),
    ),
    Case(
        "register a view",
        lambda side: Rest(
            "POST",
            f"{side.namespaces}/ns/register-view",
            {"name": "y", "metadata-location": side.answers["create a view"]["metadata-location"]},
        ),
        "Views.Register",
        lambda side: tables_pb2.RegisterViewRequest(
            view=named(side, "y"), metadata_location=side.answers["create a view"]["metadata-location"]
        ),
    ),
)

SCANS: Final = (
    Case(
        "plan a scan",
        lambda side: Rest("POST", f"{side.tables}/v/plan", {}),
        "Scans.Plan",
        lambda side: scans_pb2.PlanScanRequest(table=named(side, "v"), body=b"{}"),
    ),
    Case(
        "plan a scan with an invalid filter",
        lambda side: Rest("POST", f"{side.tables}/v/plan", {"filter": {"type": "eq", "term": "none", "value": 1}}),
        "Scans.Plan",
        lambda side: scans_pb2.PlanScanRequest(
            table=named(side, "v"), body=body({"filter": {"type": "eq", "term": "none", "value": 1}})
        ),
        "INVALID_ARGUMENT",
        400,
    ),
    Case(
        "cancel a plan",
        lambda side: Rest("DELETE", f"{side.tables}/v/plan/{side.answers['plan a scan']['plan-id']}"),
        "Scans.Cancel",
        lambda side: scans_pb2.CancelScanRequest(
            table=named(side, "v"), plan_id=side.answers["plan a scan"]["plan-id"]
        ),
    ),
    Case(
        "cancel a plan that does not exist",
        lambda side: Rest("DELETE", f"{side.tables}/v/plan/none"),
        "Scans.Cancel",
        lambda side: scans_pb2.CancelScanRequest(table=named(side, "v"), plan_id="none"),
        "NOT_FOUND",
        404,
    ),
)
