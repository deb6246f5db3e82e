"""`sandur verify`, `sandur backup`, `sandur restore` and `sandur doctor` on folders, as a shell sees them."""

import json
import os
import shutil
from pathlib import Path

import pytest

from tests.cli.commands import User


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    user = User(tmp_path / "maker")
    assert user.run("catalog", "create", "sales", "--store", str(folder)).code == 0
    assert user.run("create", "namespace", "sales.north", "--store", str(folder)).code == 0
    made = user.run("create", "table", "sales.north.orders", "--columns", "id BIGINT", "--store", str(folder))
    assert made.code == 0, made.err
    return folder


def test_verify_says_what_is_damaged_and_what_to_do(user: User, store: Path) -> None:
    sound = user.run("verify", "--store", str(store))
    (name,) = store.glob("**/names/sales/north/orders.json")
    name.write_text("{")
    damaged = user.run("verify", "--store", str(store))
    report = json.loads(user.run("verify", "--store", str(store), "--json").out)

    assert (sound.code, sound.out) == (0, "")
    assert "0 damage, 0 repairable" in sound.err
    assert damaged.code == 1
    assert "unreadable-record" in damaged.out
    assert "restore the object from a backup" in damaged.out
    kinds = {one["kind"]: one["severity"] for one in report["findings"]}
    assert kinds["unreadable-record"] == "damage"
    assert report["damage"] == len([one for one in report["findings"] if one["severity"] == "damage"])


def test_verify_has_an_exit_code_of_its_own_for_what_can_be_repaired(user: User, store: Path) -> None:
    (index,) = store.glob("**/index/tables/sales/north.v1.json")
    index.write_text("{")

    broken = user.run("verify", "--store", str(store))
    rebuilt = user.run("index", "rebuild", "--store", str(store))
    after = user.run("verify", "--store", str(store))

    assert (broken.code, "sandur index rebuild" in broken.out) == (8, True)
    assert (rebuilt.code, after.code) == (0, 0)


def test_a_backup_is_restored_into_another_folder_and_verified(user: User, store: Path, tmp_path: Path) -> None:
    backups, other = str(tmp_path / "backups"), tmp_path / "other"
    tables = ("--allow-location", os.path.relpath(store))  # As the store itself may be given.

    first = user.run("backup", "create", backups, "--store", str(store), "--json").json
    made = user.run("create", "table", "sales.north.late", "--columns", "id BIGINT", "--store", str(store))
    second = user.run("backup", "create", backups, "--store", str(store), "--json").json
    listed = user.run("backup", "list", backups, "--json").json
    refused = user.run("restore", backups, "--store", str(store))
    restored = user.run("restore", backups, "--store", str(other), *tables, "--json").json
    unknown = user.run("verify", "--store", str(other))
    verified = user.run("verify", "--store", str(other), *tables)
    shown = user.run("ls", "sales.north", "--store", str(other), "-o", "json").json

    assert made.code == 0, made.err
    assert [one["id"] for one in listed] == [first["id"], second["id"]]
    assert (second["previous"], second["copied_bytes"] < first["copied_bytes"]) == (first["id"], True)
    assert (refused.code, "has a catalog already" in refused.err) == (5, True)
    assert restored["backup"] == second["id"]
    assert (unknown.code, "metadata-not-allowed" in unknown.out) == (8, True)
    assert verified.code == 0, verified.out
    assert {one["name"].rpartition(".")[2] for one in shown} == {"late", "orders"}


def test_a_store_above_the_current_folder_is_the_same_by_its_full_path(user: User, tmp_path: Path) -> None:
    store = ("--store", os.path.relpath(tmp_path / "lake"))
    assert ".." in store[1]

    made = [user.run("catalog", "create", "c", *store), user.run("create", "namespace", "c.n", *store)]
    made += [user.run("create", "table", "c.n.t", "--columns", "id BIGINT", *store)]
    shown = user.run("show", "c.n.t", "--store", str(tmp_path / "lake"))

    assert [one.code for one in (*made, shown)] == [0, 0, 0, 0], [one.err for one in (*made, shown)]


def test_a_store_that_was_copied_to_another_folder_works_on(user: User, store: Path, tmp_path: Path) -> None:
    """Tables stay where they are."""
    moved = tmp_path / "moved"
    shutil.copytree(store, moved)
    config = tmp_path / "sandur.toml"
    config.write_text(f'store = "{moved}"\nallowed_locations = ["file://{store}"]\n')

    sound = user.run("verify", "--config", str(config))
    shown = user.run("show", "sales.north.orders", "--store", str(moved), "--config", str(config), "-o", "json")
    made = user.run(
        "create", "table", "sales.north.new", "--columns", "id BIGINT", "--store", str(moved), "--config", str(config)
    )

    assert sound.code == 0, sound.out
    assert shown.code == 0, shown.err
    assert made.code == 0, made.err


def test_doctor_says_what_to_do_and_fails_only_for_failures(user: User, store: Path) -> None:
    sound = user.run("doctor", "--store", str(store), "--json").json
    (form,) = store.glob("_shared/format.json")
    form.write_text(json.dumps(json.loads(form.read_text()) | {"major": 99}))
    broken = user.run("doctor", "--store", str(store))
    missing = user.run("doctor", "--store", str(store / "none"))

    assert sound["fail"] == 0
    lines = {line["subject"]: line for line in sound["lines"]}
    assert {"versions", "open files", "memory", "disk", "store", "rights", "clock", "records"} <= set(lines)
    assert lines["janitors"]["state"] == "warn"
    assert all(line["remedy"] for line in lines.values() if line["state"] != "ok")
    assert (broken.code, "upgrade Sandur" in broken.out) == (1, True)
    assert missing.code == 1
