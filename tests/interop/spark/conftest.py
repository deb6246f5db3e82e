"""One Spark at a time, shared by the tests of one flavour, and a fresh namespace for each test."""

import itertools
from collections.abc import Iterator

import pytest

from tests.interop.engines.conversation import Conversation
from tests.interop.engines.environments import NotInstalled
from tests.interop.matrix import FOLDER, RECORDER, S3
from tests.interop.server_address import Served
from tests.interop.spark.flavours import LATEST, NEXT, OLDEST, Flavour
from tests.interop.spark.spark_processes import SPARKS, Sql

_numbers = itertools.count()
_VERSIONS = {
    LATEST.engine: f"{LATEST.spark}, Iceberg {LATEST.iceberg} and {NEXT.iceberg}",
    OLDEST.engine: f"(Iceberg {OLDEST.iceberg})",
}


@pytest.fixture
def spark(request: pytest.FixtureRequest) -> Conversation:
    """A running Spark of the flavour that the mark `shows` selects."""
    flavour: Flavour = request.param
    RECORDER.version(flavour.engine, _VERSIONS[flavour.engine])
    try:
        return SPARKS.on(flavour, _served(request, flavour.store))
    except NotInstalled as reason:
        pytest.skip(f"{flavour}: {reason}")


@pytest.fixture
def sql(spark: Conversation) -> Iterator[Sql]:
    """Statements to the Spark, in a namespace that only this test uses."""
    statements = Sql(spark, f"sandur.spark_{next(_numbers)}")
    statements("CREATE NAMESPACE {here}")
    statements("USE {here}")
    yield statements
    statements("USE sandur")


def _served(request: pytest.FixtureRequest, store: str) -> Served:
    if store == FOLDER:
        return Served(FOLDER, request.getfixturevalue("folder_server"))
    return Served(S3, request.getfixturevalue("bucket_server"), request.getfixturevalue("seaweedfs_settings").s3)
