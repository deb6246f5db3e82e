"""One Spark session for all tests of the pipeline, and stores for jobs to work on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from pyspark.sql import SparkSession

from sandur.pipeline.maintenance.engine import session_options
from sandur.pipeline.runs import create_session
from sandur.pipeline.sources import register_sources
from sandur.settings import Settings
from tests.pipeline.world import World

OPTIONS = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # Compiling queries takes longer than running them on a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.default.parallelism": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.warehouse.dir": "/nonexistent",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """PySpark leaves the socket of every `collect` to the garbage collector."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """One session for all tests: a start takes seconds."""
    packages = session_options(Settings(store="/nonexistent"), with_delta=True)
    session = create_session("local[2]", name="tests", options={**OPTIONS, **packages})
    register_sources(session)
    yield session
    session.stop()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An empty folder with a catalog."""
    with World(Settings(store=str(tmp_path / "store"), fsync="never")) as made:
        yield made


@pytest.fixture
def bucket_world(seaweedfs_settings: Settings, tmp_path: Path) -> Iterator[World]:
    """An empty prefix of a real S3 store with a catalog."""
    with World(replace(seaweedfs_settings, store=f"s3://sandur/{tmp_path.name}")) as made:
        yield made
