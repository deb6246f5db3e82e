"""One JVM for the whole session, or a printed reason why it is missing."""

from collections.abc import Iterator

import pytest

from tests.differential.java_oracle import JavaOracle, OracleUnavailable


@pytest.fixture(scope="session")
def java() -> Iterator[JavaOracle]:
    try:
        oracle = JavaOracle()
    except OracleUnavailable as reason:
        pytest.skip(str(reason))
    yield oracle
    oracle.close()
