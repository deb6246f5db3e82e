"""A refusal never rests on a record that the server remembers (G4): the owner of a table may be another one by now."""

import pytest

from sandur.catalog.identifiers import Identifier
from sandur.errors import Forbidden, Hidden
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.transactions.coordinator import commit_transaction
from sandur.operations.unity.owners import change_owner
from sandur.server.needs import COMMIT_DELTA_TABLE
from tests.operations.authorized_lakes import T, by, enter, lake_of_principals
from tests.operations.batches import together, warm
from tests.operations.delta_requests import D, add, create_managed
from tests.operations.lakes import make_lake
from tests.operations.principals import acting, request_of
from tests.operations.requests import append, commit, content, create, identifier_of, load, request, set_property

U = identifier_of("u")


@pytest.fixture
async def servers() -> tuple[Lake, Lake]:
    """Two servers of one store that have seen both tables."""
    lake = await lake_of_principals()
    await create(lake, "u")
    other = make_lake(lake.store, lake.clock)
    for server in (lake, other):
        for table in (T, U):
            await warm(server, table)
    await enter(lake, "ann")
    return lake, other


async def own(lake: Lake, name: str, *tables: Identifier) -> None:
    for table in tables:
        await change_owner(lake, "table", f"main.{table}", name, request(f"{name} owns {table}"))
    await lake.background.drain()


def is_allowed_by(acting: Lake) -> bool:
    """Whether the audit trail shows decisions for the request, and none against it."""
    assert acting.access
    return {one.verdict.outcome for one in acting.access.decisions} == {"allowed"}


@pytest.mark.parametrize("beside", [0, 2], ids=["alone", "in a batch"])
async def test_a_new_owner_commits_on_a_server_that_remembers_the_old_one(
    servers: tuple[Lake, Lake], beside: int
) -> None:
    lake, other = servers
    await own(lake, "ann", T)

    ann = by(other, "ann", "updateTable")
    said = await together(
        other,
        T,
        [
            commit_table(ann, T, commit(set_property(f"p{n}", "1")), request_of("ann", f"{n}"))
            for n in range(1 + beside)
        ],
    )

    assert not [one for one in said if isinstance(one, BaseException)]
    assert is_allowed_by(ann)
    assert {f"p{n}" for n in range(1 + beside)} <= content(await load(lake, T))["properties"].keys()


async def test_a_new_owner_commits_a_transaction_on_a_server_that_remembers_the_old_one(
    servers: tuple[Lake, Lake],
) -> None:
    lake, other = servers
    await own(lake, "ann", T, U)

    ann = by(other, "ann", "commitTransaction")
    await commit_transaction(ann, "main", [(T, append(1)), (U, append(1))], request_of("ann", "transaction"))

    assert is_allowed_by(ann)
    for table in (T, U):
        assert content(await load(lake, table))["current-snapshot-id"] == 1


async def test_a_new_owner_commits_to_a_delta_table_on_a_server_that_remembers_the_old_one(
    servers: tuple[Lake, Lake],
) -> None:
    lake, other = servers
    table = await create_managed(lake)
    await add(other, table, 1)
    await own(lake, "ann", D)

    ann = acting(other, "ann", COMMIT_DELTA_TABLE)
    await add(ann, table, 2)

    assert is_allowed_by(ann)


async def test_an_owner_before_is_refused(servers: tuple[Lake, Lake]) -> None:
    lake, other = servers
    await own(lake, "ann", T, U)
    for table in (T, U):
        await warm(other, table)
    await own(lake, "bob", T, U)

    with pytest.raises((Forbidden, Hidden)):
        await commit_table(
            by(other, "ann", "updateTable"), T, commit(set_property("p", "1")), request_of("ann", "alone")
        )
    with pytest.raises((Forbidden, Hidden)):
        await commit_transaction(
            by(other, "ann", "commitTransaction"),
            "main",
            [(T, append(1)), (U, append(1))],
            request_of("ann", "transaction"),
        )
