"""One table of commands over three targets: a server, a server with logins, and a store. All print the same."""

import json
import logging
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from tests.cli.commands import Done, User
from tests.server.logins import ADMIN_SECRET
from tests.server.process import server_process

COLUMNS: Final = "id BIGINT NOT NULL COMMENT 'the key', ts TIMESTAMP, place STRUCT<city: STRING, zip: ARRAY<INT>>"
EVENTS: Final = "--format delta --columns 'id BIGINT NOT NULL, day DATE' --partition-by day"
ORDERS: Final = f"""create table main.sales.orders --columns "{COLUMNS}" --partition-by 'day(ts)' --property k=v"""

# Each command sees what the commands before it made.
COMMANDS: Final = (
    "create namespace main.sales --comment 'All sales' --property team=one",
    "create namespace main.sales.europe",
    "create namespace 'main.`dotted.level`' -o json",
    ORDERS,
    ORDERS,
    f"create table main.sales.events {EVENTS} --comment hey",
    "create table main.sales.bad --columns 'id WHAT'",
    "create table main.sales.bad --columns 'id INT' --partition-by 'bucket(id)'",
    "create table main.sales.bad --columns 'id INT' --partition-by nothing",
    "create table main.sales.bad --columns '' --format delta",
    "create table main.missing.t --columns 'id INT'",
    "create view main.sales.recent --sql 'select 1 as id' --columns 'id INT' --comment new",
    "create volume main.sales.files --comment raw",
    "create function main.sales.plus --definition 'x + 1' --returns INT --parameter 'x INT'",
    "create model main.sales.forecast",
    "ls",
    "ls main",
    "ls main.sales",
    "ls main.sales -l -o csv",
    "ls main.sales --kind table -o jsonl",
    "ls main.sales.europe",
    "ls 'main.`dotted.level`'",
    "ls main.sales.orders",
    "ls main.nothing",
    "find or",
    "find ID --columns",
    "find sales --tags",
    "find sales --properties",
    "find ID --columns --in main.sales --kind view -o json",
    "find x --in main.nothing",
    *(f"show {name}" for name in ("main", "main.sales", "main.sales.orders", "main.sales.events")),
    *(f"show main.sales.{name}" for name in ("recent", "files", "plus", "forecast", "nothing")),
    "show main.sales.orders --json",
    "show main.sales.orders --schema",
    "show main.sales.events --schema -o csv",
    "show main.sales.recent --schema -o jsonl",
    "show main.sales.orders --ddl",
    "show main.sales.events --ddl",
    "show main.sales --ddl",
    "show main.sales.files --schema",
    "set main.sales.orders owner=me k=w comment='for you'",
    "unset main.sales.orders owner",
    "unset main.sales.orders owner",
    "set main.sales.events a=b comment=changed",
    "unset main.sales.events a",
    "set main.sales team=two",
    "unset main.sales team",
    "set main comment=all x=y",
    "set main.sales.recent p=q",
    "set main.sales.files comment=cooked",
    "set main.sales.files x=y",
    "set main.sales.plus comment=no",
    "set main.sales.orders broken",
    "history main.sales.orders -o jsonl",
    "history main.sales.events",
    "history main.sales.recent",
    "history main.sales.files",
    "diff main.sales.orders 0",
    "diff main.sales.orders 0 99",
    "diff main.sales.events",
    "diff main.sales.recent",
    "view list main.sales",
    "view get main.sales.recent",
    "view get main.sales.orders",
    "view create main.sales.other --sql 'select 2 as id' --columns 'id INT' --dialect trino",
    "view create main.sales.other --sql 'select 2 as id'",
    "view update main.sales.other --sql 'select 3 as id, 4 as n' --columns 'id INT, n INT' --comment changed",
    "view update main.sales.other",
    "view get main.sales.other --json",
    "view delete main.sales.other",
    "view delete main.sales.other --yes",
    "view delete main.sales.orders --yes",
    "rename main.sales.orders main.sales.europe.orders",
    "rename main.sales.events happened",
    "rename main.sales.happened main.sales.europe.events",
    "rename main.sales.recent newest",
    "rename main.sales.files folder -o json",
    "rename main.sales.forecast guess",
    "rename main.sales.plus minus",
    "rename main.sales marketing",
    "ls main.sales",
    "ls main.marketing",
    "rename main.marketing sales",
    "rename main.sales.nothing x",
    "tag main.sales.europe.orders v1",
    "tag main.sales.happened v1",
    "branch main.sales.happened b1",
    "rollback main.sales.happened --to 0 --yes",
    "rollback main.sales.newest --to 0 --yes",
    "rollback main.sales.europe.orders",
    "rollback main.sales.europe.orders --to nowhere --yes",
    "drop main.sales.europe.orders",
    "drop main.sales.newest --purge --yes",
    "drop main.sales.europe.orders --purge --yes",
    "drop main.sales.happened --yes -o json",
    "drop main.sales --yes",
    "drop main.sales.folder --cascade --yes",
    "drop main.sales --cascade --yes",
    "drop main.sales --yes",
    "create catalog other --comment second",
    "rename other another",
    "show other",
    "show another",
    "drop another --yes",
    "create catalog a.b",
    "ls -o yaml",
    "show a..b",
)

_UNSTABLE: Final = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\+00:00"), "TIME"),
    (re.compile(r"\b1[7-9]\d{11}\b"), "MILLISECONDS"),
    (re.compile(r"file:/+[^\s\",]*?/data/"), "ROOT/"),
    (re.compile(r"\b(admin|anonymous|tester|rest|sandur/[\d.]+)\b|\bsandur(?=[\t\"])"), "WHO"),
    (re.compile(r"[0-9a-f]{4,}-ID"), "ID"),
)


def comparable(done: Done) -> tuple[int, str, str]:
    """What a command printed, without what differs from run to run and from target to target."""
    out, err = done.out, done.err
    for pattern, text in _UNSTABLE:
        out, err = pattern.sub(text, out), pattern.sub(text, err)
    return done.code, out, err


class Targets:
    """Users of the same commands: of a server, of a server with logins, and of a store."""

    def __init__(self, users: dict[str, tuple[User, tuple[str, ...]]]) -> None:
        self.users = users

    def run(self, name: str, *arguments: str) -> Done:
        user, flags = self.users[name]
        return user.run(*arguments, *flags)


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Targets]:
    folder = tmp_path_factory.mktemp("targets")
    plain, secured, store = (folder / name for name in ("plain", "secured", "store"))
    for place in (plain, secured, store):
        place.mkdir()
    login = {"authentication": "on", "admin_secret": ADMIN_SECRET}
    with (
        server_process(plain, fsync="never") as one,
        server_process(secured, fsync="never", **login) as other,
    ):
        admin = User(folder / "admin")
        arguments = ("login", "--server", other.url, "--client-id", "admin", "--client-secret-stdin")
        assert admin.run(*arguments, stdin=ADMIN_SECRET).code == 0
        owner = User(folder / "owner", SANDUR_FSYNC="never")
        assert owner.run("catalog", "create", "unused", "--store", str(store / "data")).code == 0
        assert owner.run("drop", "unused", "--yes", "--store", str(store / "data")).code == 0
        yield Targets(
            {
                "server": (User(folder / "guest"), ("--server", one.url)),
                "logins": (admin, ()),
                "store": (owner, ("--store", str(store / "data"), "--as", "tester")),
            }
        )


@pytest.mark.parametrize("server", ["logins", pytest.param("server", marks=pytest.mark.slow)])
def test_every_command_prints_the_same_on_a_server_and_on_a_store(
    targets: Targets, server: str, tmp_path: Path
) -> None:
    store, owner = str(tmp_path / "data"), User(tmp_path / "owner", SANDUR_FSYNC="never")
    assert owner.run("catalog", "create", "unused", "--store", store).code == 0
    assert owner.run("drop", "unused", "--yes", "--store", store).code == 0

    for command in COMMANDS:
        arguments = shlex.split(command)
        on_server = comparable(targets.run(server, *arguments))
        on_store = comparable(owner.run(*arguments, "--store", store, "--as", "tester"))

        assert on_server == on_store, command
        assert "Traceback" not in on_store[2], command


def test_the_source_of_a_change_on_a_store_is_its_user(targets: Targets) -> None:
    targets.run("store", "create", "namespace", "main.sources")
    targets.run("store", "create", "table", "main.sources.t", "--columns", "id INT")

    (row,) = targets.run("store", "history", "main.sources.t", "--json").json

    assert (row["source"], row["principal"], row["operation"]) == ("admin", "tester", "create")


def test_history_diff_tags_and_rollback_of_a_table_with_data(targets: Targets) -> None:
    user, flags = targets.users["server"]
    catalog = load_catalog("sandur", type="rest", uri=flags[1], warehouse="main")
    catalog.create_namespace("data")
    table = catalog.create_table("data.t", pa.schema({"id": pa.int64(), "country": pa.string()}))
    table.append(pa.table({"id": [1, 2], "country": ["IS", "DK"]}))
    table.append(pa.table({"id": [3], "country": ["SE"]}))
    with table.update_schema() as update:
        update.rename_column("country", "land")

    tagged = user.run("tag", "main.data.t", "first", "--at", "1", "--keep", "P30D", "--json", *flags).json
    again = user.run("tag", "main.data.t", "first", *flags)
    rows = user.run("history", "main.data.t", "--json", *flags).json
    changes = user.run("diff", "main.data.t", "0", "3", "--json", *flags).json
    rolled = user.run("rollback", "main.data.t", "--to", "first", "--yes", *flags)
    branch = user.run("branch", "main.data.t", "audit", *flags)
    shown = user.run("show", "main.data.t", "--json", *flags).json
    removed = [user.run("tag", "main.data.t", "first", "--delete", *flags).code for _ in range(2)]

    assert [(row["version"], row.get("operation", ""), row.get("rows_added")) for row in rows[::-1]] == [
        (0, "create", None),
        (1, "append", 2),
        (2, "append", 1),
        (3, "", None),
        (4, "", None),
    ]
    assert rows[1]["engine"].startswith("PyIceberg")
    assert rows[0]["refs"] == {"first": [0, tagged["snapshot_id"]]}
    assert (again.code, "pass --replace" in again.err) == (1, True)
    assert (changes["from"], changes["to"]) == (0, 3)
    assert {(one["kind"], one["name"]) for one in changes["changes"] if one["area"] == "column"} == {
        ("renamed", "land")
    }
    assert (rolled.code, branch.code) == (0, 0), rolled.err
    assert shown["table"]["current_snapshot_id"] == tagged["snapshot_id"]
    assert {ref["name"]: ref["kind"] for ref in shown["table"]["refs"]} == {
        "main": "branch",
        "first": "tag",
        "audit": "branch",
    }
    assert removed == [0, 3]
    assert len(table.refresh().scan().to_arrow()) == 2


def test_jobs_show_what_waits(targets: Targets) -> None:
    user, flags = targets.users["store"]
    user.run("create", "namespace", "main.waiting", *flags)
    user.run("create", "table", "main.waiting.t", "--columns", "id INT", *flags)
    user.run("drop", "main.waiting.t", "--purge", "--yes", *flags)

    found = user.run("jobs", "--json", *flags).json
    rows = user.run("jobs", *flags).out.splitlines()

    assert [(one["name"], one["state"]) for one in found["purges"]][-1] == ("main.waiting.t", "waiting")
    assert [row.split("\t")[:3] for row in rows if "waiting.t" in row] == [["purges", "main.waiting.t", "waiting"]]


def test_a_table_is_registered_by_its_metadata_file(targets: Targets) -> None:
    user, flags = targets.users["server"]
    user.run("create", "namespace", "main.moved", *flags)
    user.run("create", "table", "main.moved.t", "--columns", "id INT", *flags)
    location = user.run("show", "main.moved.t", "--json", *flags).json["table"]["metadata_location"]
    user.run("drop", "main.moved.t", "--yes", *flags)

    done = user.run("register", "main.moved.again", location, *flags)
    missing = user.run("register", "main.moved.other", f"{location}.none", *flags)

    assert done.code == 0, done.err
    assert user.run("show", "main.moved.again", *flags).code == 0
    assert missing.code in {1, 3}, missing


def test_definitions_move_from_a_server_to_a_store_and_are_applied_once(targets: Targets, tmp_path: Path) -> None:
    user, flags = targets.users["server"]
    store_user, store_flags = targets.users["store"]
    for command in (
        "create namespace main.plans --property a=b",
        "create namespace main.plans.inner",
        f"create table main.plans.orders --columns \"{COLUMNS}\" --partition-by 'bucket(4, id)' --property k=v",
        f"create table main.plans.events {EVENTS}",
        "create view main.plans.recent --sql 'select 1 as id' --columns 'id INT'",
        "create volume main.plans.files --comment raw",
        "create function main.plans.plus --definition 'x + 1' --returns INT --parameter 'x INT'",
        "create model main.plans.forecast --comment next",
    ):
        assert user.run(*shlex.split(command), *flags).code == 0, command
    file = tmp_path / "plans.json"

    assert user.run("export", "main.plans", "--file", str(file), *flags).code == 0
    refused = store_user.run("apply", str(file), *store_flags)
    dry = store_user.run("apply", str(file), "--dry-run", "--json", *store_flags).json
    applied = store_user.run("apply", str(file), "--yes", "--json", *store_flags).json
    again = store_user.run("apply", str(file), "--yes", "--json", *store_flags).json
    exported = store_user.run("export", "main.plans", *store_flags).out
    some = user.run("export", "main.plans", "--kind", "namespace", "--kind", "view", *flags).json["objects"]
    unknown = user.run("export", "main.plans", "--kind", "views", *flags)

    assert (refused.code, "pass --yes" in refused.err) == (1, True)
    assert [one["action"] for one in dry] == ["create"] * 8
    assert applied == dry
    assert again == []
    assert [".".join(one["name"]) for one in some] == ["main.plans", "main.plans.inner", "main.plans.recent"]
    assert (unknown.code, "choose from catalog, namespace" in unknown.err) == (1, True)
    assert exported.split('"name"', 1)[1] == file.read_text().split('"name"', 1)[1]

    changed = file.read_text().replace("select 1 as id", "select 2 as id").replace('"k": "v"', '"k": "w"')
    file.write_text(changed.replace('"transform": "bucket[4]"', '"transform": "bucket[8]"'))
    partly = store_user.run("apply", str(file), "--yes", "--json", *store_flags)
    assert partly.code == 5
    assert "partition-spec" in partly.err
    assert {(one["action"], one["name"]) for one in json.loads(partly.out)} == {
        ("set", "main.plans.orders"),
        ("differs", "main.plans.orders"),
        ("replace", "main.plans.recent"),
    }


def test_apply_adds_columns_at_the_end_and_refuses_a_broken_file(targets: Targets, tmp_path: Path) -> None:
    user, flags = targets.users["store"]
    user.run("create", "namespace", "main.grown", *flags)
    user.run("create", "table", "main.grown.t", "--columns", "id INT", *flags)
    definitions = user.run("export", "main.grown", *flags).json
    table = next(one for one in definitions["objects"] if one["kind"] == "table")
    element = {"type": "list", "element-id": 7, "element": "string", "element-required": False}
    table["content"]["schema"]["fields"].append({"id": 9, "name": "tags", "required": False, "type": element})
    file = tmp_path / "grown.json"
    file.write_text(json.dumps(definitions))

    (step,) = user.run("apply", str(file), "--yes", "--json", *flags).json
    schema = user.run("show", "main.grown.t", "--schema", "--json", *flags).json

    assert (step["action"], step["detail"]) == ("add columns", "tags")
    assert [(one["id"], one["path"]) for one in schema] == [(1, "id"), (2, "tags"), (3, "tags.element")]
    for text in (
        "",
        "[]",
        '{"sandur": 2, "objects": []}',
        '{"sandur": 1, "objects": [{"name": ["a"], "kind": "table"}]}',
    ):
        file.write_text(text)
        assert user.run("apply", str(file), "--yes", *flags).code == 1
    assert user.run("apply", str(tmp_path / "none"), "--yes", *flags).code == 1


@pytest.mark.parametrize("store", ["missing", "readable"])
def test_a_command_on_a_store_leaves_the_logging_of_its_process_as_it_was(tmp_path: Path, store: str) -> None:
    user = User(tmp_path)
    if store == "readable":
        assert user.run("catalog", "create", "sales", "--store", str(tmp_path / store)).code == 0
    before = logging.getLogger().level, logging.getLogger().handlers[:]

    user.run("ls", "--store", str(tmp_path / store))

    assert (logging.getLogger().level, logging.getLogger().handlers[:]) == before
