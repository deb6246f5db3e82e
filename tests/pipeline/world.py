"""A catalog on a real store; tables are created and committed to as clients do it."""

import itertools
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.records import Request
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.lake import Lake
from sandur.operations.tables.commit import commit_table
from sandur.operations.tables.create import create_table
from sandur.operations.tables.documents import LoadedTable
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, Listed, ObjectStore, list_all
from sandur.storage.layout import Layout
from tests.operations.requests import commit, request, table

T = TypeVar("T")

NAMESPACE = Namespace("main", ("sales",))
_runs = itertools.count(1)


def identifier_of(name: str, namespace: Namespace = NAMESPACE) -> Identifier:
    return Identifier(*namespace, name)


class World:
    """A store with a catalog `main` and a namespace `sales`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.blocking = BlockingLake(settings)
        self._labels = itertools.count()

    def __enter__(self) -> Self:
        from sandur.operations.containers.catalogs import ensure_default_catalog  # noqa: PLC0415
        from sandur.operations.lake import complete_new_store  # noqa: PLC0415

        self.wait(complete_new_store(self.lake.store, self.lake.clock))
        self.wait(ensure_default_catalog(self.lake))
        self.wait(create_namespace(self.lake, NAMESPACE, {}, self.request()))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.blocking.close()

    @property
    def lake(self) -> Lake:
        return self.blocking.lake

    @property
    def layout(self) -> Layout:
        return self.lake.layout

    @property
    def store(self) -> ObjectStore:
        return self.lake.store

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self.blocking.wait(work)

    def settle(self) -> None:
        """Wait for background work."""
        self.wait(self.lake.background.drain())

    def request(self, source: Source | None = None) -> Request:
        origin = source or Source(kind="rest", client="tests", principal="ada")
        return request(f"request {next(self._labels)}")._replace(source=origin)

    def make(self, name: str, **fields: object) -> LoadedTable:
        made = self.wait(create_table(self.lake, NAMESPACE, table(name, **fields), self.request()))
        self.settle()
        return made

    def set_property(self, name: str, value: str, *, key: str = "p") -> LoadedTable:
        """Commit to a table by setting a property."""
        change = commit({"action": "set-properties", "updates": {key: value}})
        done = self.wait(commit_table(self.lake, identifier_of(name), change, self.request()))
        self.settle()
        return done

    def commits(self, name: str, count: int) -> None:
        for number in range(count):
            self.set_property(name, str(number))

    def listed(self, folder: str) -> list[Listed]:
        return self.wait(list_all(self.store, folder))

    def receipts(self, *, of_changes: bool = False) -> dict[str, bytes]:
        """Every receipt of a commit by its key; or every receipt of a change of the catalog."""
        found = {}
        for listed in self.listed(self.layout.events_folder()):
            stored = self.wait(self.store.get(listed.key))
            assert stored
            if ("/catalog/committed/" in listed.key) == of_changes:
                found[listed.key] = stored.data
        return found

    def all_receipts(self) -> dict[str, bytes]:
        return self.receipts() | self.receipts(of_changes=True)

    def put(self, key: str, data: bytes) -> None:
        self.wait(self.store.put(key, data, expected=ABSENT))

    def remove(self, key: str) -> None:
        listed = self.wait(self.store.head(key))
        assert listed
        self.wait(self.store.delete(key, expected=listed.version))

    def damage(self, key: str) -> None:
        """Overwrite an object with bytes that cannot be decoded."""
        listed = self.wait(self.store.head(key))
        assert listed
        self.wait(self.store.put(key, b"rubbish", expected=listed.version))

    @contextmanager
    def context(self, spark: SparkSession, **options: Any) -> Iterator[JobContext]:
        lake = {name: options.pop(name) for name in ("clock", "store") if name in options}
        blocking = BlockingLake(self.settings, **lake)
        with JobContext(spark=spark, blocking=blocking, run_id=f"run-{next(_runs):08d}", **options) as context:
            yield context

    def run(self, spark: SparkSession, job: Job, **options: Any) -> JobReport:
        with self.context(spark, **options) as context:
            return job.run(context)

    def dataset(self, spark: SparkSession, name: str) -> list[dict[str, Any]]:
        """The rows of a published dataset, sorted."""
        with self.context(spark) as context:
            frame = spark.read.format("sandur_dataset").options(**context.source_options).option("dataset", name).load()
            return rows_of(frame.toArrow())


def rows_of(arrow: pa.Table) -> list[dict[str, Any]]:
    return sorted(arrow.to_pylist(), key=str)
