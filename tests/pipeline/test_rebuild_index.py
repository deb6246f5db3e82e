"""`rebuild-index` replaces wrong or missing indexes."""

import pytest
from pyspark.sql import SparkSession

from sandur.catalog.index import CATALOGS, Scope, names_scope
from sandur.errors import BadRequest, NotFound
from sandur.pipeline.jobs.rebuild_index import REBUILD_INDEX
from tests.pipeline.world import NAMESPACE, World

TABLES = names_scope(NAMESPACE)


def _empty_index(world: World, scope: Scope) -> None:
    cell = world.lake.index(scope)
    found = world.wait(cell.read())
    assert found is not None
    empty = type(found.value)(version=1, updated_at_epoch_ms=0, entries=())
    world.wait(cell.swap(empty, expected=found.version))


def _listed(world: World) -> list[str]:
    found = world.wait(world.lake.index(TABLES).read())
    assert found is not None
    return [entry.name for entry in found.value.entries]


def test_a_wrong_index_is_corrected_and_the_others_are_confirmed(world: World, spark: SparkSession) -> None:
    for name in ("t", "u"):
        world.make(name)
    _empty_index(world, TABLES)

    dry = world.run(spark, REBUILD_INDEX, dry_run=True)
    still_lying = _listed(world)
    done = world.run(spark, REBUILD_INDEX)
    again = world.run(spark, REBUILD_INDEX)

    assert still_lying == []
    assert dry.counts["lists_corrected"] == done.counts["lists_corrected"] == 1
    assert _listed(world) == ["t", "u"]
    assert again.counts == {"lists": 4, "lists_right": 4, "entries": 4, "segments_merged": 0}
    assert done.warnings == ()


@pytest.mark.slow
def test_only_the_indexes_of_a_scope_are_rebuilt(world: World, spark: SparkSession) -> None:
    world.make("t")
    _empty_index(world, TABLES)
    _empty_index(world, CATALOGS)

    world.run(spark, REBUILD_INDEX, arguments={"namespace": "sales"})

    catalogs = world.wait(world.lake.index(CATALOGS).read())
    assert _listed(world) == ["t"]
    assert catalogs is not None
    assert catalogs.value.entries == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"catalog": "nowhere"}, NotFound),
        ({"namespace": "nowhere"}, NotFound),
        ({"namespace": "a..b"}, BadRequest),
        ({"catalog": "nowhere", "namespace": "sales"}, NotFound),
    ],
)
def test_a_scope_that_does_not_exist_is_refused(
    world: World, spark: SparkSession, arguments: dict[str, str], error: type[Exception]
) -> None:
    with pytest.raises(error):
        world.run(spark, REBUILD_INDEX, arguments=arguments)
