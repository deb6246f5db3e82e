"""One table of cases: each is a request to a REST API and the call of a gRPC method that means the same.

The cases run in their order, on two catalogs that are alike: one changes by REST, the other by gRPC.
"""

from typing import Final

from google.protobuf.field_mask_pb2 import FieldMask

from sandur.v1 import catalogs_pb2, delta_pb2
from tests.grpc.case import UNITY, Case, Rest, Side, named, namespace
from tests.grpc.stubs import body, namespace_name
from tests.grpc.table_cases import SCANS, TABLES, VIEWS
from tests.server.unity.delta_requests import add_commit, creation, update

NAMESPACES: Final = (
    Case(
        "create a namespace",
        lambda side: Rest("POST", side.namespaces, {"namespace": ["ns"], "properties": {"a": "b"}}),
        "Namespaces.Create",
        lambda side: catalogs_pb2.CreateNamespaceRequest(name=namespace(side), properties={"a": "b"}),
    ),
    Case(
        "create it again",
        lambda side: Rest("POST", side.namespaces, {"namespace": ["ns"]}),
        "Namespaces.Create",
        lambda side: catalogs_pb2.CreateNamespaceRequest(name=namespace(side)),
        "ALREADY_EXISTS",
        409,
    ),
    Case(
        "create a nested namespace",
        lambda side: Rest("POST", side.namespaces, {"namespace": ["ns", "é/x y"], "properties": {}}),
        "Namespaces.Create",
        lambda side: catalogs_pb2.CreateNamespaceRequest(name=namespace(side, "ns", "é/x y")),
    ),
    Case(
        "list namespaces",
        lambda side: Rest("GET", side.namespaces),
        "Namespaces.List",
        lambda side: catalogs_pb2.ListNamespacesRequest(parent=namespace_name(catalog=side.catalog)),
    ),
    Case(
        "list below a namespace",
        lambda side: Rest("GET", side.namespaces, query={"parent": "ns"}),
        "Namespaces.List",
        lambda side: catalogs_pb2.ListNamespacesRequest(parent=namespace(side)),
    ),
    Case(
        "list in a catalog that does not exist",
        lambda _side: Rest("GET", "/v1/none/namespaces"),
        "Namespaces.List",
        lambda _side: catalogs_pb2.ListNamespacesRequest(parent=namespace_name(catalog="none")),
        "NOT_FOUND",
        404,
    ),
    Case(
        "load a nested namespace",
        lambda side: Rest("GET", f"{side.namespaces}/ns%1F%C3%A9%2Fx%20y"),
        "Namespaces.Get",
        lambda side: catalogs_pb2.GetNamespaceRequest(name=namespace(side, "ns", "é/x y")),
    ),
    Case(
        "drop a namespace that is not empty",
        lambda side: Rest("DELETE", f"{side.namespaces}/ns"),
        "Namespaces.Delete",
        lambda side: catalogs_pb2.DeleteNamespaceRequest(name=namespace(side)),
        "FAILED_PRECONDITION",
        409,
    ),
    Case(
        "drop a nested namespace",
        lambda side: Rest("DELETE", f"{side.namespaces}/ns%1F%C3%A9%2Fx%20y"),
        "Namespaces.Delete",
        lambda side: catalogs_pb2.DeleteNamespaceRequest(name=namespace(side, "ns", "é/x y")),
    ),
    Case(
        "update properties",
        lambda side: Rest(
            "POST", f"{side.namespaces}/ns/properties", {"updates": {"c": "d"}, "removals": ["a", "missing"]}
        ),
        "Namespaces.Update",
        lambda side: catalogs_pb2.UpdateNamespaceRequest(
            name=namespace(side),
            properties={"c": "d"},
            update_mask=FieldMask(paths=["properties.c", "properties.a", "properties.missing"]),
        ),
    ),
    Case(
        "load a namespace",
        lambda side: Rest("GET", f"{side.namespaces}/ns"),
        "Namespaces.Get",
        lambda side: catalogs_pb2.GetNamespaceRequest(name=namespace(side)),
    ),
    Case(
        "load a namespace that does not exist",
        lambda side: Rest("GET", f"{side.namespaces}/none"),
        "Namespaces.Get",
        lambda side: catalogs_pb2.GetNamespaceRequest(name=namespace(side, "none")),
        "NOT_FOUND",
        404,
    ),
)


def _delta_uuid(side: Side) -> str:
    return str(side.answers["create a Delta table"]["metadata"]["table-uuid"])


DELTA: Final = (
    Case(
        "stage a Delta table",
        lambda side: Rest("POST", f"{side.delta}/staging-tables", {"name": "d"}),
        "DeltaTables.Stage",
        lambda side: delta_pb2.StageDeltaTableRequest(table=named(side, "d")),
    ),
    Case(
        "create a Delta table",
        lambda side: Rest("POST", f"{side.delta}/tables", creation(side.answers["stage a Delta table"], "d")),
        "DeltaTables.Create",
        lambda side: delta_pb2.CreateDeltaTableRequest(
            namespace=namespace(side), body=body(creation(side.answers["stage a Delta table"], "d"))
        ),
    ),
    Case(
        "commit to a Delta table",
        lambda side: Rest("POST", f"{side.delta}/tables/d", update(_delta_uuid(side), add_commit(1))),
        "DeltaTables.Commit",
        lambda side: delta_pb2.CommitDeltaTableRequest(
            table=named(side, "d"), body=body(update(_delta_uuid(side), add_commit(1)))
        ),
    ),
    Case(
        "commit a version that is taken",
        lambda side: Rest("POST", f"{side.delta}/tables/d", update(_delta_uuid(side), add_commit(1, "other.json"))),
        "DeltaTables.Commit",
        lambda side: delta_pb2.CommitDeltaTableRequest(
            table=named(side, "d"), body=body(update(_delta_uuid(side), add_commit(1, "other.json")))
        ),
        "ABORTED",
        409,
    ),
    Case(
        "load a Delta table",
        lambda side: Rest("GET", f"{side.delta}/tables/d"),
        "DeltaTables.Get",
        lambda side: delta_pb2.GetDeltaTableRequest(table=named(side, "d")),
    ),
    Case(
        "load an Iceberg table as a Delta table",
        lambda side: Rest("GET", f"{side.delta}/tables/v"),
        "DeltaTables.Get",
        lambda side: delta_pb2.GetDeltaTableRequest(table=named(side, "v")),
        "INVALID_ARGUMENT",
        400,
    ),
    Case(
        "drop a Delta table",
        lambda side: Rest("DELETE", f"{side.delta}/tables/d"),
        "DeltaTables.Drop",
        lambda side: delta_pb2.DropDeltaTableRequest(table=named(side, "d")),
    ),
)

CATALOGS: Final = (
    Case(
        "change a catalog",
        lambda side: Rest("PATCH", f"{UNITY}/catalogs/{side.catalog}", {"comment": "new", "properties": {"k": "v"}}),
        "Catalogs.Update",
        lambda side: catalogs_pb2.UpdateCatalogRequest(
            name=side.catalog,
            comment="new",
            properties={"k": "v"},
            update_mask=FieldMask(paths=["comment", "properties"]),
        ),
    ),
    Case(
        "load a catalog",
        lambda side: Rest("GET", f"{UNITY}/catalogs/{side.catalog}"),
        "Catalogs.Get",
        lambda side: catalogs_pb2.GetCatalogRequest(name=side.catalog),
    ),
    Case(
        "load a catalog that does not exist",
        lambda _side: Rest("GET", f"{UNITY}/catalogs/none"),
        "Catalogs.Get",
        lambda _side: catalogs_pb2.GetCatalogRequest(name="none"),
        "NOT_FOUND",
        404,
    ),
    Case(
        "list catalogs",
        lambda _side: Rest("GET", f"{UNITY}/catalogs"),
        "Catalogs.List",
        lambda _side: catalogs_pb2.ListCatalogsRequest(),
    ),
    Case(
        "drop a catalog that is not empty",
        lambda side: Rest("DELETE", f"{UNITY}/catalogs/{side.catalog}"),
        "Catalogs.Delete",
        lambda side: catalogs_pb2.DeleteCatalogRequest(name=side.catalog),
        "FAILED_PRECONDITION",
        400,
    ),
    Case(
        "drop a catalog with its contents",
        lambda side: Rest("DELETE", f"{UNITY}/catalogs/{side.catalog}", query={"force": "true"}),
        "Catalogs.Delete",
        lambda side: catalogs_pb2.DeleteCatalogRequest(name=side.catalog, force=True),
    ),
)

CASES: Final = (*NAMESPACES, *TABLES, *VIEWS, *SCANS, *DELTA, *CATALOGS)
