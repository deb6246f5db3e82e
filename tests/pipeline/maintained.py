"""Tables to maintain: written by PyIceberg, with every state that a reader can reach, and the rows of each."""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.table import Table
from pyspark.sql import SparkSession

from sandur.catalog.maintenance.policies import PolicyEdit
from sandur.catalog.security.privileges import SecurableType
from sandur.cli.catalog_server import open_catalog
from sandur.operations.policies import change_policy
from sandur.pipeline.job import JobReport
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.project import PROJECT
from sandur.spark.sessions import Connection
from tests.pipeline.world import World

SCHEMA = pa.schema({"id": pa.int64(), "text": pa.string()})
FASTER = (CommitFailedException, ValidationException)
"""What PyIceberg raises if another writer was faster; nothing of the commit is visible."""
EAGER: dict[str, Any] = {
    "mode": "run",
    "quiet": "PT0S",
    "compaction": {"min_input_files": 3},
    "orphans": {"enabled": False},
}


def opener(world: World) -> Callable[[str], AbstractContextManager[Connection]]:
    return partial(open_catalog, world.settings)


@contextmanager
def connected(world: World) -> Iterator[Catalog]:
    with open_catalog(world.settings) as found:
        yield load_catalog("sandur", type="rest", uri=found.uri, token=found.token, warehouse="main")


def make_small_files(catalog: Catalog, name: str, files: int, **properties: str) -> Table:
    table = catalog.create_table(f"sales.{name}", SCHEMA, properties=properties)
    for number in range(files):
        table.append(small_rows([number]))
    return table


def small_rows(numbers: Iterable[int]) -> pa.Table:
    ids = list(numbers)
    return pa.table({"id": ids, "text": [f"row {number}" for number in ids]}, schema=SCHEMA)


def set_policy(world: World, values: dict[str, Any], scope: str = "main") -> None:
    kind: SecurableType = "table" if scope.count(".") > 1 else "catalog"
    world.wait(change_policy(world.lake, kind, scope, PolicyEdit(set=values), world.request()))


def measured(world: World, spark: SparkSession) -> None:
    world.run(spark, PROJECT)
    world.run(spark, HEALTH)


def maintained(world: World, spark: SparkSession, **options: Any) -> JobReport:
    """Measure all tables, then maintain them."""
    measured(world, spark)
    return world.run(spark, MAINTAIN, open_catalog=opener(world), **options)


def row_hash(rows: pa.Table) -> str:
    return hashlib.sha256(repr(sorted(map(str, rows.to_pylist()))).encode()).hexdigest()


def hashes(table: Table) -> dict[str, str]:
    """The rows of every snapshot, branch and tag that the table has now, by its name."""
    table.refresh()
    found = {str(one.snapshot_id): one.snapshot_id for one in table.snapshots()}
    found |= {name: ref.snapshot_id for name, ref in table.metadata.refs.items()}
    return {name: row_hash(table.scan(snapshot_id=one).to_arrow()) for name, one in found.items()}


def store_objects(world: World) -> dict[str, object]:
    return {one.key: one.version for one in world.listed("")}
