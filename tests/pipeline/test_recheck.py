"""A missing table counts as dropped only if its pointer or its name says so."""

from typing import Any

import pytest

from sandur.operations.lake import Lake
from sandur.operations.tables.drop import drop_name
from sandur.operations.tables.rename import rename
from sandur.pipeline.executor_tasks.project import recheck_table
from tests.operations.lakes import make_lake
from tests.operations.requests import NAMESPACE, create, identifier_of, request, set_up_catalog


@pytest.fixture
async def lake() -> Lake:
    made = make_lake()
    await set_up_catalog(made)
    return made


async def published(lake: Lake, name: str) -> dict[str, Any]:
    """Create a table and return its published row."""
    made = await create(lake, name)
    at = {"catalog": NAMESPACE.catalog, "namespace": str(NAMESPACE), "name": name}
    columns = {"kind": "table", "format": "iceberg", "metadata_location": "as it was"}
    return {**at, "uuid": made.table_uuid, "table_uuid": made.table_uuid, **columns}


async def recheck_row(lake: Lake, was: dict[str, Any]) -> dict[str, Any] | None:
    """Recheck with empty caches, like another process."""
    row = await recheck_table(make_lake(lake.store, lake.clock), was)
    return dict(row) if row else None


async def move(lake: Lake, old: str, new: str) -> None:
    await rename(lake, identifier_of(old), identifier_of(new), kind="table", request=request(f"{old} to {new}"))


async def damage(lake: Lake, key: str) -> None:
    stored = await lake.store.get(key)
    assert stored
    await lake.store.put(key, b"rubbish", expected=stored.version)


async def test_a_dropped_table_is_gone(lake: Lake) -> None:
    was = await published(lake, "t")

    await drop_name(lake, identifier_of("t"), kind="table", request=request("drop"))
    await lake.background.drain()

    assert await recheck_row(lake, was) is None


async def test_a_drop_that_did_not_reach_the_pointer_counts(lake: Lake) -> None:
    was = await published(lake, "t")
    pointer = await lake.store.get(lake.layout.pointer(was["uuid"]))
    assert pointer

    await drop_name(lake, identifier_of("t"), kind="table", request=request("drop"))
    await lake.background.drain()
    dropped = await lake.store.head(lake.layout.pointer(was["uuid"]))
    assert dropped
    await lake.store.put(lake.layout.pointer(was["uuid"]), pointer.data, expected=dropped.version)

    assert await recheck_row(lake, was) is None


async def test_a_table_is_found_after_any_number_of_renames(lake: Lake) -> None:
    was = await published(lake, "t")

    await move(lake, "t", "u")
    await move(lake, "u", "v")
    row = await recheck_row(lake, was)

    assert row
    assert (row["name"], row["uuid"], row["is_shown"], row.get("problem")) == ("v", was["uuid"], True, None)
    assert row["metadata_location"] != was["metadata_location"]


async def test_an_existing_table_is_found_under_its_name(lake: Lake) -> None:
    was = await published(lake, "t")

    row = await recheck_row(lake, was)

    assert row
    assert (row["name"], row.get("problem")) == ("t", None)


@pytest.mark.parametrize("damaged", ["pointer", "name"])
async def test_an_unreadable_table_keeps_its_published_row(lake: Lake, damaged: str) -> None:
    was = await published(lake, "t")
    layout = lake.layout

    await damage(lake, layout.pointer(was["uuid"]) if damaged == "pointer" else layout.name(identifier_of("t")))
    row = await recheck_row(lake, was)

    assert row
    assert row.items() >= was.items()
    assert row["problem"]


async def test_a_live_table_without_a_name_keeps_its_published_row(lake: Lake) -> None:
    """Another table took the old name before the recheck."""
    was = await published(lake, "t")

    await move(lake, "t", "u")
    await create(lake, "t")
    row = await recheck_row(lake, was)

    assert row
    assert row.items() >= was.items()
    assert "no name leads to it" in row["problem"]
