"""Delta tables and the older groups `catalog`, `delta` and `index`: on a server and on a store."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

from tests.cli.commands import Done, User
from tests.server.process import server_process

COLUMNS = ("--columns", "id BIGINT NOT NULL, day DATE")


class Place:
    """A target, and a folder whose tables it may register."""

    def __init__(self, user: User, flags: tuple[str, ...], folder: Path) -> None:
        self.user = user
        self.flags = flags
        self.folder = folder

    def run(self, *arguments: str) -> Done:
        return self.user.run(*arguments, *self.flags)


@pytest.fixture(scope="module", params=["server", "store"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    home = tmp_path_factory.mktemp("delta")
    outside = home / "outside"
    outside.mkdir()
    allowed = outside.as_uri()
    user = User(home / "user", SANDUR_FSYNC="never", SANDUR_ALLOWED_LOCATIONS=allowed)
    if request.param == "store":
        store = ("--store", str(home / "data"))
        assert user.run("catalog", "create", "unused", *store).code == 0
        assert user.run("create", "namespace", "main.d", *store).code == 0
        yield Place(user, store, outside)
        return
    with server_process(home, fsync="never", allowed_locations=allowed) as server:
        flags = ("--server", server.url)
        assert user.run("create", "namespace", "main.d", *flags).code == 0
        yield Place(user, flags, outside)


def _write_log(folder: Path, *versions: list[dict[str, Any]]) -> str:
    """A Delta table that something else wrote, with these actions."""
    log = folder / "_delta_log"
    log.mkdir(parents=True)
    for number, actions in enumerate(versions):
        (log / f"{number:020d}.json").write_text("\n".join(map(json.dumps, actions)))
    return folder.as_uri()


def _metadata(*columns: str, **configuration: str) -> dict[str, Any]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in columns]
    return {
        "metaData": {
            "id": "5b6b2b4e-0000-4000-8000-00000000000b",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": fields}),
            "partitionColumns": [columns[-1]],
            "configuration": configuration,
        }
    }


def test_a_delta_table_is_registered_by_its_folder(place: Place) -> None:
    location = _write_log(
        place.folder / "events",
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, _metadata("id", "day")],
        [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}],
        [_metadata("id", "more", "day")],
        [{"commitInfo": {"timestamp": 3, "operation": "WRITE"}}],
    )

    done = place.run("register", "main.d.events", location, "--json")
    shown = place.run("show", "main.d.events", "--json").json["table"]
    history = place.run("history", "main.d.events", "-o", "jsonl").out.splitlines()

    assert done.json["format"] == "delta"
    assert [column["path"] for column in shown["columns"]] == ["id", "more", "day"]
    assert shown["partitions"] == ["day"]
    assert [json.loads(line)["version"] for line in history] == [3, 2, 1, 0]
    assert place.run("register", "main.d.events", location).code == 5


def test_what_is_not_an_external_delta_table_is_not_registered(place: Place) -> None:
    managed = _write_log(place.folder / "managed", [_metadata("id", **{"io.unitycatalog.tableId": "x"})])
    broken = _write_log(place.folder / "broken", [{"add": {}}])

    missing = place.run("register", "main.d.nothing", (place.folder / "nothing").as_uri())
    owned = place.run("register", "main.d.managed", managed)
    empty = place.run("register", "main.d.broken", broken)
    elsewhere = place.run("register", "main.d.etc", "file:///etc")
    replaced = place.run("register", "main.d.events", broken, "--overwrite")
    unknown = place.run("register", "main.d.t", broken, "--format", "hudi")

    assert (missing.code, "No Delta table" in missing.err) == (3, True), missing
    assert (owned.code, "managed by a catalog" in owned.err) == (1, True), owned
    assert (empty.code, "no metaData" in empty.err) == (1, True), empty
    assert elsewhere.code in {1, 4}, elsewhere
    assert [replaced.code, unknown.code] == [1, 1]


def test_what_delta_does_not_have_says_what_to_do(place: Place) -> None:
    assert place.run("create", "table", "main.d.t", *COLUMNS, "--format", "delta").code == 0

    tag = place.run("tag", "main.d.t", "v1")
    branch = place.run("branch", "main.d.t", "b")

    assert (tag.code, "Delta has no tag" in tag.err) == (1, True)
    assert (branch.code, "Delta has no branch" in branch.err) == (1, True)


def test_a_delta_table_is_rolled_back_to_an_earlier_version(place: Place) -> None:
    folder = place.folder / "rolled"
    deltalake.write_deltalake(folder, pa.table({"id": [1, 2]}))
    deltalake.write_deltalake(folder, pa.table({"id": [3], "more": ["x"]}), mode="append", schema_mode="merge")
    deltalake.DeltaTable(folder).delete("id < 3")
    assert place.run("register", "main.d.rolled", folder.as_uri()).code == 0

    asked = place.run("rollback", "main.d.rolled", "--to", "0")
    done = place.run("rollback", "main.d.rolled", "--to", "0", "--yes", "--json")

    assert (asked.code, "from version 2 to the state of version 0: not done without" in asked.err) == (1, True)
    assert "1 files (" in asked.err
    assert "column more" in asked.err
    assert done.json == {"name": "main.d.rolled", "before": 2, "version": 0, "new_version": 3}
    assert deltalake.DeltaTable(folder).to_pyarrow_table().to_pylist() == [{"id": 1}, {"id": 2}]
    shown = place.run("show", "main.d.rolled", "--json").json["table"]
    assert [column["path"] for column in shown["columns"]] == ["id"]
    history = [json.loads(line) for line in place.run("history", "main.d.rolled", "-o", "jsonl").out.splitlines()]
    assert (history[0]["version"], history[0]["operation"]) == (3, "restore")


@pytest.mark.parametrize(
    ("flags", "code", "error"),
    [
        (("--to", "9"), 1, "at version 0"),
        (("--to", "v1"), 1, "pass the number of a version"),
        (("--to", "²"), 1, "pass the number of a version"),
        (("--snapshot", "7"), 1, "pass the number of a version"),
        ((), 1, "rollback needs --to"),
    ],
)
def test_a_rollback_of_a_delta_table_to_nothing_is_refused(
    place: Place, flags: tuple[str, ...], code: int, error: str
) -> None:
    place.run("create", "table", "main.d.young", *COLUMNS, "--format", "delta")

    done = place.run("rollback", "main.d.young", "--yes", *flags)

    assert (done.code, error in done.err) == (code, True), done


def test_the_groups_catalog_and_delta_act_on_both(place: Place) -> None:
    made = place.run("catalog", "create", "second", "--json").json
    again = place.run("catalog", "create", "second")
    listed = place.run("catalog", "list", "--json").json
    table = place.run("delta", "create", "main.d.made", *COLUMNS, "--json").json
    twice = place.run("delta", "create", "main.d.made", *COLUMNS)
    kept = place.run("delta", "create", "main.d.made", *COLUMNS, "--if-not-exists", "--json").json
    renamed = place.run("delta", "rename", "main.d.made", "renamed", "--json").json

    assert made in listed
    assert {one["name"] for one in listed} >= {"main", "second"}
    assert again.code == 5
    assert (table["is_new"], table["table_type"]) == (True, "MANAGED")
    assert twice.code == 5
    assert (kept["is_new"], kept["table_id"]) == (False, table["table_id"])
    assert renamed == {"name": "main.d.renamed"}
    assert place.run("show", "main.d.renamed").code == 0


def test_what_only_a_store_can_do_says_so(place: Place) -> None:
    index = place.run("index", "rebuild")
    path = place.run("delta", "create", f"delta.`{(place.folder / 'path').as_uri()}`", *COLUMNS)

    if place.flags[0] == "--store":
        assert [index.code, path.code] == [0, 0], (index, path)
        return
    assert (index.code, "--store URL" in index.err) == (1, True)
    assert (path.code, "--store URL" in path.err) == (1, True)
    assert place.user.run("catalog", "list", *place.flags, "--store", "x").code == 1
