"""What each page shows: every row of the table of pages in docs/ui.md, by its headings, columns and fields."""

from typing import Any

import httpx
import pytest

from sandur.catalog.identifiers import Identifier, full_name_of
from sandur.storage.memory import MemoryStore
from tests.events.deliveries import SEALING_KEY
from tests.server.conftest import Catalogs
from tests.server.requests import create_view
from tests.ui.html import Element, parse
from tests.ui.scene import DATA, DELTA_PAGE, EVIL, LEVEL, TABLE, TABLE_PAGE, VIEW_PAGE, Scene, make_scene, segment

PLAIN = "/ui/data/main/plain"
COMMITS = ("Time", "Table", "Version", "Operation", "Source", "Principal", "Engine")
LISTED = ("Name", "Kind", "Rows", "Size", "Comment", "Owner", "Changed")
COLUMNS = ("Id", "Column", "Type", "Null", "Comment")
EDGES = ("From", "To", "Known by", "Job", "Runs", "Last", "Versions")
VERSIONS = (
    *("Version", "Time", "Source", "Principal and engine", "Operation", "Rows", "Files", "Bytes"),
    *("Branches and tags", "Lineage, quality"),
)
PAGES: dict[str, tuple[str, ...]] = {
    "/ui": ("Catalogs", "Commits a day", "Tables in need", "Newest commits", *COMMITS),
    f"/ui/search?q={segment('orders <script>')}": ("Names 1", "Columns 1", "Properties 1", "Tags 1", "Found", "Kind"),
    "/ui/data/main": ("Namespaces", "Namespace", "Comment", "Owner", "Changed", "Jump to names from", "Properties"),
    DATA: (*LISTED, "all", "tables", "views", "volumes", "functions", "models", "Jump to names from", "Properties"),
    TABLE_PAGE: (
        *COLUMNS, "Rows", "Size", "Data files", "Delete files", "Version", "Partitioned by", "Sorted by", "Location",
        "Branches and tags", "Tags of columns", "Properties", "PyIceberg", "Spark", "DuckDB", "Trino", "Definition",
    ),
    f"{TABLE_PAGE}/snapshots": (
        "Branches and tags", "Rows over time", "Bytes over time", "Snapshot", "Operation", "Total rows", "Files",
    ),
    f"{TABLE_PAGE}/timeline": (*VERSIONS, "Version 3 of 3. The arrow keys move the slider."),
    f"{TABLE_PAGE}/diff?from=0&to=3": (
        "From version", "To version", "Properties", "Branches and tags", "Snapshots", "Totals", "Version 3",
    ),
    f"{TABLE_PAGE}/health": ("Rule", "Measured", "Due", "State", "Cure", "Numbers", "Run maintenance"),
    f"{TABLE_PAGE}/lineage": ("Steps", *EDGES, "Upstream: what it is made from", "Downstream: what is made from it"),
    f"{TABLE_PAGE}/preview": ("Rows", "Show rows"),
    f"{TABLE_PAGE}/grants": ("What may a principal do?", "Granted on this table", "Inherited", "Change the grants"),
    VIEW_PAGE: ("Definition", *COLUMNS, "Versions", "About this view"),
    f"{VIEW_PAGE}/timeline": ("Version", "Time", "Source", "Principal and engine", "Operation"),
    DELTA_PAGE: (*COLUMNS, "Type", "Partitioned by", "Location", "Properties", "Spark", "DuckDB", "Definition"),
    f"{DELTA_PAGE}/snapshots": ("Versions", "Version", "Time", "Operation", "Rows added", "Files", "Bytes", "Engine"),
    f"{DELTA_PAGE}/timeline": VERSIONS,
    f"{DELTA_PAGE}/grants": ("What may a principal do?", "Granted on this table", "Inherited"),
    f"{PLAIN}/volumes/v": ("About this volume", "Location", "Owner"),
    f"{PLAIN}/functions/f": ("Definition", "About this function", "parameters", f"x {EVIL} INT", "returns"),
    f"{PLAIN}/models/m": ("Versions", "Version", "State", "Source", "Run", "Comment", "Created"),
    "/ui/activity": (*COMMITS, "Catalog", "Namespace", "Filter"),
    "/ui/jobs": ("Janitors and pipeline", "Published datasets", "Purges", "Staged tables", "State", "Detail"),
    "/ui/maintenance": ("Storage saved", "Backlog", "Requests", "Next run", "Left alone", "Operations", "Outcome"),
    "/ui/audit": ("Request id", "Decision", "Since", "Until"),
    "/ui/subscriptions": ("Subscription", "URL", "Events", "State", "Owner", "Changed"),
    "/ui/policies": ("Scope", "Set here", "In effect", "Field", "Value", "From", "Locked by", "Change this policy"),
    "/ui/server": ("Version", "Authentication", "Store", "Settings", "Setting", "Value"),
    "/ui/me": ("Name", "Kind", "Groups and roles"),
    "/ui/dropped/main": ("Name", "Kind", "Dropped", "By", "Owner", "Action"),
}  # fmt: skip


class Place:
    def __init__(self, client: httpx.AsyncClient, scene: Scene) -> None:
        self.client = client
        self.scene = scene

    async def page(self, path: str) -> Element:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return parse(answer.text)


@pytest.fixture
async def place(catalogs: Catalogs) -> Place:
    store = MemoryStore()
    client = await catalogs.open(store, sealing_keys=(SEALING_KEY,), deliveries=False)
    return Place(client, await make_scene(client, store, subscribes=True))


def labels_of(page: Element) -> set[str]:
    """The headings, heads of columns, names of facts, fields, tabs and buttons of a page."""
    tags = ("h1", "h2", "h3", "th", "dt", "dd", "label", "a", "button")
    return {one.text for tag in tags for one in page.one("main").every(tag)}


async def test_every_page_shows_what_it_is_for(place: Place) -> None:
    missing = {}
    for path, wanted in PAGES.items():
        shown = labels_of(await place.page(path))
        if left := [one for one in wanted if one not in shown]:
            missing[path] = (left, shown)

    assert missing == {}


async def test_the_current_version_of_a_view_and_the_others_show_their_sql(client: httpx.AsyncClient) -> None:
    (await client.post("/v1/namespaces", json={"namespace": ["ns"]})).raise_for_status()
    (await client.post("/v1/namespaces/ns/views", json=create_view("v", "select 'old'"))).raise_for_status()
    version = {**create_view("v", "select 'new'")["view-version"], "version-id": 2}
    updates = [
        {"action": "add-view-version", "view-version": version},
        {"action": "set-current-view-version", "view-version-id": -1},
    ]
    (await client.post("/v1/namespaces/ns/views/v", json={"requirements": [], "updates": updates})).raise_for_status()

    page = parse((await client.get("/ui/data/main/ns/views/v")).text)

    assert [one.text for one in page.every("pre")] == ["select 'new'", "select 'old'"]
    assert [one.text.split(",")[0] for one in page.every("summary")] == ["Actions", "Version 1"]


async def test_the_command_line_prints_what_the_pages_show(place: Place) -> None:
    """`show`, `history`, `diff`, `health` and `lineage` print what the API answers, from the same operations."""

    async def api(path: str) -> dict[str, Any]:
        answer = await place.client.get(f"/api/sandur/v1/{path}")
        return dict(answer.raise_for_status().json())

    own = f"objects/main/{segment(LEVEL)}/{segment(TABLE)}"
    described, history, changes = await api(own), await api(f"{own}/history"), await api(f"{own}/changes?from=0&to=3")
    health = (await api("table-health?worst=1"))["rows"][0]
    node = f"table:{full_name_of(Identifier('main', (LEVEL,), TABLE))}"
    edges = (await api(f"lineage?node={segment(node)}&direction=both&depth=1"))["edges"]
    table, timeline = await place.page(TABLE_PAGE), await place.page(f"{TABLE_PAGE}/timeline")
    diff, graph = await place.page(f"{TABLE_PAGE}/diff?from=0&to=3"), await place.page(f"{TABLE_PAGE}/lineage")

    names = [row[1] for row in table.rows()]
    assert [one["name"] for one in described["table"]["columns"]] == names[:2]
    rows, page = timeline.one("table", class_="dense").rows(), await place.page(f"{TABLE_PAGE}/health")
    assert [(str(one["version"]), one.get("operation") or "metadata only") for one in history["versions"]] == [
        (row[0], row[4]) for row in rows
    ]
    assert [(one["kind"], one["name"]) for one in changes["changes"]] == [(row[0], row[1]) for row in diff.rows()]
    assert str(health["small_files"]) in labels_of(page)
    assert sorted(one["confidence"] for one in edges) == sorted(row[2] for row in graph.rows())
