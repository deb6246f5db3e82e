"""A table written by each engine is read by every engine that reaches the same store."""

import re

import pytest

from tests.interop.cross import ROWS, Reader, Writer, contributed_readers, contributed_writers
from tests.interop.cross_python import READERS, WRITERS
from tests.interop.engines.registry import opened
from tests.interop.matrix import READS_OF, STORES, operation
from tests.interop.server_address import Served, created_namespace

ALL_WRITERS = [*WRITERS, *contributed_writers()]
ALL_READERS = [*READERS, *contributed_readers()]


class Written:
    """The written tables: each engine writes one per store, before its first reader runs."""

    def __init__(self) -> None:
        self._namespaces: dict[tuple[str, str], str] = {}
        self._failures: dict[tuple[str, str], BaseException] = {}

    def by(self, writer: Writer, served: Served) -> str:
        """The namespace of the table `t` of the writer; if writing it failed, each reader gets the reason."""
        key = (writer.engine, served.store)
        if key in self._failures:
            raise self._failures[key]
        if key not in self._namespaces:
            namespace = created_namespace(served)
            try:
                writer.write(served, namespace, "t")
            except BaseException as failure:
                self._failures[key] = failure
                raise
            self._namespaces[key] = namespace
        return self._namespaces[key]


@pytest.fixture(scope="module")
def written() -> Written:
    return Written()


def _pair(store: str, writer: Writer, reader: Reader) -> object:
    refusal = reader.refuses.get(writer.engine, "")
    marks = [operation(reader.engine, f"{READS_OF}{writer.engine} wrote", store=store, cannot=refusal)]
    if not (writer.is_quick and reader.is_quick):
        marks.append(pytest.mark.interop)
    return pytest.param(store, writer, reader, id=f"{store}-{writer.engine}-{reader.engine}", marks=marks)


@pytest.mark.parametrize(
    ("served", "writer", "reader"),
    [
        _pair(store, writer, reader)
        for store in STORES
        # Ordered by reader: every engine writes for the first reader, and is started once more to read.
        for reader in ALL_READERS
        for writer in ALL_WRITERS
        if store in writer.stores and store in reader.stores
    ],
    indirect=["served"],
)
def test_every_engine_reads_the_table_of_every_other_engine(
    served: Served, writer: Writer, reader: Reader, written: Written
) -> None:
    namespace = written.by(writer, served)
    if refusal := reader.refuses.get(writer.engine):
        with pytest.raises(Exception, match=re.escape(refusal)):
            reader.read(served, namespace, "t")
        return

    found = reader.read(served, namespace, "t")

    assert sorted((tuple(row) for row in found), key=lambda row: str(row[0])) == list(ROWS)


@pytest.mark.interop
@pytest.mark.parametrize(
    ("served", "writer"),
    [
        pytest.param(store, writer, id=f"{store}-{writer.engine}")
        for store in STORES
        for writer in ALL_WRITERS
        if store in writer.stores
    ],
    indirect=["served"],
)
def test_iceberg_js_finds_the_table_of_every_engine(served: Served, writer: Writer, written: Written) -> None:
    """It supports the catalog API but reads no rows."""
    namespace = written.by(writer, served)

    found = opened("iceberg-js", served).ask(call="loadTable", **{"with": [{"namespace": [namespace], "name": "t"}]})

    [schema] = [one for one in found["schemas"] if one["schema-id"] == found["current-schema-id"]]
    assert [field["name"] for field in schema["fields"]] == ["id", "name", "amount"]
    assert found["current-snapshot-id"] is not None
