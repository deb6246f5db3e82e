"""Write the table of operations and privileges in docs/security.md from the routes of every API.

python -m checks.privilege_table
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from sandur.catalog.security.privileges import OPEN, Needs, Rule
from sandur.server.app import Route
from sandur.server.control.routes import ROUTES as OWN
from sandur.server.delta_rest.routes import ROUTES as DELTA
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG
from sandur.server.openlineage.routes import ROUTES as OPENLINEAGE
from sandur.server.ui.routes import ROUTES as UI
from sandur.server.unity_rest.routes import CLASSIC_ROUTES, CONTROL_ROUTES

PAGE: Final = Path(__file__).parent.parent / "docs" / "security.md"
BEGIN: Final = "<!-- begin: written by python -m checks.privilege_table -->\n"
END: Final = "<!-- end -->\n"

APIS: Final[dict[str, Sequence[Route]]] = {
    "Iceberg REST": ICEBERG,
    "Unity Catalog": (*CLASSIC_ROUTES, *CONTROL_ROUTES),
    "Delta": DELTA,
    "Sandur": OWN,
    "OpenLineage": OPENLINEAGE,
    "Web UI": UI,
}


def main() -> None:
    text = PAGE.read_text()
    before, _, rest = text.partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{rest.partition(END)[2]}")


def table() -> str:
    """One row for every group of operations with the same needs, by API."""
    lines = ["| API | operations | on | needs | for some requests |", "|---|---|---|---|---|"]
    for api, routes in APIS.items():
        for needs, operations in _by_needs(routes):
            further = "; ".join(f"{situation}: {rule_text(rule)}" for situation, rule in needs.further.items())
            lines.append(
                f"| {api} | {', '.join(operations)} | {securable_text(needs)} | {rule_text(needs.rule)} | {further} |"
            )
    return "\n".join(lines) + "\n"


def _by_needs(routes: Sequence[Route]) -> Iterator[tuple[Needs, list[str]]]:
    groups: dict[str, tuple[Needs, list[str]]] = {}
    for route in routes:
        if route.needs is OPEN:
            continue
        _, operations = groups.setdefault(repr(route.needs), (route.needs, []))
        if route.operation not in operations:
            operations.append(route.operation)
    yield from groups.values()


def securable_text(needs: Needs) -> str:
    return "–" if needs.on == "caller" else needs.on.replace("_", " ")


def rule_text(rule: Rule) -> str:
    if rule.is_visibility:
        return "that it is visible"
    privileges = " and ".join(part for part in (" and ".join(rule.all_of), " or ".join(rule.any_of)) if part)
    owner = {"no": "", "object": "its ownership", "chain": "ownership or MANAGE, on it or above"}[rule.owner]
    return " or ".join(part for part in (privileges, owner) if part)


if __name__ == "__main__":
    main()
