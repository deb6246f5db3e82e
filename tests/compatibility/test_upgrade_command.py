"""`sandur upgrade` on a folder with a store of the first release."""

import asyncio
import json
from pathlib import Path

import pytest

from sandur.catalog.record_versions import NEWEST
from sandur.storage.contract import ABSENT
from sandur.storage.local import LocalStore
from tests.compatibility.tour import load
from tests.unit.test_command_line import sandur


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """The objects of the fixture as files."""

    async def fill() -> None:
        store = LocalStore(tmp_path, fsync="never")
        for key, text in load().objects.items():
            await store.put(key, text.encode(), expected=ABSENT)

    asyncio.run(fill())
    return str(tmp_path)


def test_a_dry_run_is_the_default_and_says_what_to_do(folder: str) -> None:
    done = sandur("upgrade", "--store", folder)

    assert done.returncode == 0, done.stderr
    assert "names\t9\t9" in done.stdout
    assert f"The store has version 1.0. The upgrade to {NEWEST} cannot be undone." in done.stderr
    assert "sandur upgrade --no-dry-run" in done.stderr
    assert not Path(folder, "_shared", "format.json").exists()


def test_the_upgrade_reports_as_json_and_is_done_once(folder: str) -> None:
    first = sandur("upgrade", "--store", folder, "--no-dry-run", "--json")
    second = sandur("upgrade", "--store", folder, "--no-dry-run", "--json")
    plan = sandur("upgrade", "--store", folder)

    assert first.returncode == second.returncode == 0, first.stderr
    report, again = json.loads(first.stdout), json.loads(second.stdout)
    assert (report["before"], report["after"], report["state"]) == ("1.0", str(NEWEST), "steady")
    assert report["old"]["names"] == report["records"]["names"] == 9
    assert (again["before"], again["state"], sum(again["old"].values())) == (str(NEWEST), "steady", 0)
    assert f"The store has version {NEWEST}, which is the newest." in plan.stderr
    assert json.loads(Path(folder, "_shared", "format.json").read_text())["state"] == "steady"


def test_a_record_that_cannot_be_upgraded_is_named_and_the_upgrade_is_not_done(folder: str) -> None:
    name = next(key for key in load().objects if "/names/" in key)
    Path(folder, name).write_text("{broken")

    done = sandur("upgrade", "--store", folder, "--no-dry-run", "--json")

    assert done.returncode == 7
    assert name in done.stderr
    assert json.loads(done.stdout)["state"] == "raising"


def test_a_folder_that_is_not_a_store_is_refused(tmp_path: Path) -> None:
    done = sandur("upgrade", "--store", str(tmp_path / "nothing"))

    assert done.returncode == 1
    assert "does not exist" in done.stderr
