"""Generate docs/rest.md, the reference of the REST APIs beyond the two specifications, from the tables of routes.

`python -m checks.rest_reference` writes the page; a test fails if the page is not current.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from checks.privilege_table import rule_text, securable_text
from sandur.catalog.security.privileges import AUTHENTICATED, OPEN
from sandur.server.app import Route
from sandur.server.control.routes import ROUTES as OWN
from sandur.server.iceberg_rest.routes import EVENT_ROUTES
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG
from sandur.server.openlineage.routes import ROUTES as OPENLINEAGE

PAGE: Final = Path(__file__).parent.parent / "docs" / "rest.md"
_INTRODUCTION: Final = """# REST extensions

This page is generated from the tables of routes by `python -m checks.rest_reference`.

Sandur serves the Iceberg REST API at `/v1`, the [Unity Catalog API](unity.md) at `/api/2.1/unity-catalog` and Delta's
API below it, as their specifications define them. This page lists what Sandur adds.

```bash
curl -fsS http://127.0.0.1:8181/api/sandur/v1/contents
```

The levels of a namespace are joined by `%1F` in a path. A change takes the header `Idempotency-Key`: with the same key,
a request that is sent again is not applied twice. *Needs* is what the caller must have if
[authentication](security.md) is on.
"""
_TEXTS: Final = {
    "changeMembers": "add and remove members of a group",
    "changeOwner": "give an object another owner",
    "createApiKey": "create an API key; its text is in this answer only",
    "createSecret": "create a secret; its text is in this answer only",
    "defineTable": "create a table of either format from columns in SQL, or register a Delta table",
    "describeCatalog": "a catalog with its owner, root, properties and tags",
    "describeLogin": "how to log in: the identity providers of the server",
    "describeNamespace": "a namespace with its owner, properties and tags",
    "describeObject": "a table, view, volume, function or model in full",
    "getColumnLineage": "the lineage of columns, in the form of OpenLineage clients",
    "getLineage": "the lineage graph, in the form of OpenLineage clients",
    "listCatalogContents": "what is in a catalog, in pages",
    "listContents": "the catalogs, in pages",
    "listDropped": "what was dropped and can be brought back",
    "listJobs": "what works in the background: janitors, pipeline, maintenance",
    "listNamespaceContents": "what is in a namespace, in pages",
    "listStages": "tables that were prepared and are not visible yet",
    "loadAudit": "search the audit trail",
    "loadChanges": "the differences between two versions of a table",
    "loadEffectivePrivileges": "all privileges on an object, with their origin",
    "loadEvents": "events of the catalog from a cursor on, in pages",
    "loadHistory": "the versions of a table or view, newest first",
    "loadLineage": "the lineage graph of a table or column",
    "loadMaintenancePlan": "what maintenance would do now",
    "loadSelf": "who the caller is",
    "postLineage": "receive an OpenLineage event",
    "postLineageBatch": "receive OpenLineage events",
    "preview": "rows of tables, for people",
    "publishKeys": "the public keys that verify tokens of the server",
    "queryEvents": "events in the form of Iceberg's proposal; served with the setting `iceberg_events`",
    "removeRestrictions": "remove the restrictions of a table",
    "revokeTokens": "end all tokens of a principal",
    "signS3Request": "sign a request to S3, at the address that older clients use",
    "streamEvents": "events as they happen, as server-sent events",
    "tableGovernance": "owner, tags and times of a table",
    "tablePartitionSpecs": "the partition specs of a table",
    "tableSchemas": "the schemas of a table",
    "tableSnapshots": "the snapshots of a table",
    "undrop": "bring a dropped object back",
}
_ICEBERG_OWN: Final = tuple(route for route in (*ICEBERG, *EVENT_ROUTES) if not route.is_advertised)
_APIS: Final[tuple[tuple[str, str, str, Sequence[Route]], ...]] = (
    ("Sandur's own API", "/api/sandur/v1", "", OWN),
    ("OpenLineage", "/api/v1", "[Lineage](lineage.md) describes the events.", OPENLINEAGE),
    ("Beside the Iceberg REST API", "", "These routes are not in the list of endpoints of `/v1/config`.", _ICEBERG_OWN),
)


def render_page() -> str:
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    for title, mount, text, routes in _APIS:
        yield f"## {title}\n"
        if text:
            yield f"{text}\n"
        yield "| request | what | needs |\n|---|---|---|"
        for route in sorted(routes, key=lambda one: (one.path, one.method)):
            what = _TEXTS.get(route.operation) or _words(route.operation)
            yield f"| `{route.method} {mount}{route.path}` | {what} | {_needs(route)} |"
        yield ""


def _words(operation: str) -> str:
    """The name of an operation as words: `listApiKeys` becomes `list api keys`."""
    return re.sub(r"(?=[A-Z])", " ", operation).lower()


def _needs(route: Route) -> str:
    if route.needs is OPEN:
        return "nothing"
    if route.needs is AUTHENTICATED:
        return "a login"
    if route.needs.on == "caller":
        return "that it is the caller's own, or ownership of the metastore"
    on = "object" if "{securable_type}" in route.path else securable_text(route.needs)
    if route.needs.rule.is_visibility:
        return f"that the {on} is visible"
    return f"on the {on}: {rule_text(route.needs.rule)}"


def main() -> None:
    PAGE.write_text(render_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
