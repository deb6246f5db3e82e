"""Credentials of the server on a real S3: what they open, and what they keep closed while tables come, go and move."""

import threading
from collections.abc import Callable, Iterator

import httpx
import pyarrow as pa
import pytest
from obstore.exceptions import BaseError
from obstore.store import S3Store
from pyiceberg.catalog import Catalog, load_catalog

from sandur.settings import Settings
from tests.interop.keyless_lake import SCHEMA, KeylessLake, key_of, keyless_lake

ROW = pa.Table.from_pylist([{"id": 7, "name": "seven", "amount": 0.7}], schema=SCHEMA)
ROUNDS = 12


@pytest.fixture(scope="module")
def lake(seaweedfs_sts: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeylessLake]:
    with keyless_lake(tmp_path_factory.mktemp("isolation"), seaweedfs_sts.s3) as running:
        yield running


@pytest.fixture
def catalog(lake: KeylessLake) -> Iterator[Catalog]:
    """The catalog of the writer, without keys."""
    properties = lake.writer.pyiceberg_properties
    with load_catalog("writer", type="rest", uri=lake.server.url, warehouse="main", **properties) as opened:
        yield opened


def refused(act: Callable[[], object]) -> None:
    """The store refuses an act."""
    with pytest.raises(BaseError, match=r"(?i)AccessDenied|Access Denied|403|privileges"):
        act()


def requests_outside(bucket: S3Store, own: str, other: str) -> dict[str, Callable[[], object]]:
    """Requests of a client with a credential for `own`, none of which its table needs."""
    parent = own.rpartition("/")[0]
    return {
        "read the neighbour": lambda: bucket.get(f"{other}/x"),
        "write to the neighbour": lambda: bucket.put(f"{other}/y", b"y"),
        "delete from the neighbour": lambda: bucket.delete(f"{other}/x"),
        "list the neighbour": lambda: bucket.list(prefix=f"{other}/").collect(),
        "read a sibling": lambda: bucket.get(f"{own}-x/x"),
        "write to a sibling": lambda: bucket.put(f"{own}-x/y", b"y"),
        "list the parent": lambda: bucket.list(prefix=f"{parent}/").collect(),
        "list the bucket": lambda: bucket.list().collect(),
        "copy from the neighbour": lambda: bucket.copy(f"{other}/x", f"{own}/stolen"),
        "copy to the neighbour": lambda: bucket.copy(f"{own}/own", f"{other}/planted"),
        "write beside all tables": lambda: bucket.put("anything", b"y"),
    }


@pytest.mark.parametrize("request_name", requests_outside(S3Store("none"), "a/b", "c"))
def test_a_credential_opens_nothing_but_its_table(lake: KeylessLake, request_name: str) -> None:
    location, credential = lake.loaded(lake.writer, "sales.orders")
    own, other = key_of(location), key_of(lake.location("sales.salaries"))
    owner, client = lake.bucket(), lake.bucket(credential)
    for key in (f"{other}/x", f"{own}-x/x", f"{own}/own"):
        owner.put(key, b"x")
    assert bytes(client.get(f"{own}/own").bytes()) == b"x"

    refused(requests_outside(client, own, other)[request_name])


def test_a_writer_writes_lists_and_deletes_within_its_table(lake: KeylessLake) -> None:
    location, credential = lake.loaded(lake.writer, "sales.orders")
    own, client = key_of(location), lake.bucket(credential)

    client.put(f"{own}/data/new", b"new")
    client.put(f"{own}/data/large", b"l" * 12_000_000, use_multipart=True, chunk_size=6_000_000)

    assert {entry["path"] for entry in client.list(prefix=f"{own}/data/").collect()} >= {f"{own}/data/new"}
    client.delete(f"{own}/data/new")
    assert f"{own}/data/new" not in lake.keys_below(location)


@pytest.mark.parametrize("act", ["put", "delete", "multipart"])
def test_a_reader_reads_and_changes_nothing(lake: KeylessLake, act: str) -> None:
    location, credential = lake.loaded(lake.reader, "sales.prices")
    own, client = key_of(location), lake.bucket(credential)
    before = lake.keys_below(location)
    assert bytes(client.get(min(before)).bytes())

    acts: dict[str, Callable[[], object]] = {
        "put": lambda: client.put(f"{own}/data/new", b"new"),
        "delete": lambda: client.delete(min(before)),
        "multipart": lambda: client.put(f"{own}/data/new", b"l" * 12_000_000, use_multipart=True, chunk_size=6_000_000),
    }
    refused(acts[act])

    assert lake.keys_below(location) == before


def test_a_credential_of_a_dropped_table_cannot_touch_its_successor(lake: KeylessLake, catalog: Catalog) -> None:
    catalog.create_table("work.again", SCHEMA).append(ROW)
    old_location, old = lake.loaded(lake.writer, "work.again")
    catalog.drop_table("work.again")
    catalog.create_table("work.again", SCHEMA).append(ROW)
    new_location, new = lake.loaded(lake.writer, "work.again")
    files = lake.keys_below(new_location)

    client = lake.bucket(old)
    refused(lambda: client.put(f"{key_of(new_location)}/data/planted", b"x"))
    refused(lambda: client.get(min(files)))

    assert new_location != old_location
    assert lake.keys_below(new_location) == files
    lake.bucket(new).put(f"{key_of(new_location)}/data/own", b"x")


def test_a_renamed_table_keeps_its_location_and_its_credentials(lake: KeylessLake, catalog: Catalog) -> None:
    catalog.create_table("work.before", SCHEMA).append(ROW)
    location, credential = lake.loaded(lake.writer, "work.before")
    catalog.rename_table("work.before", "work.after")
    catalog.create_table("work.before", SCHEMA)

    lake.bucket(credential).put(f"{key_of(location)}/data/late", b"x")
    assert lake.loaded(lake.writer, "work.after")[0] == location
    successor, _ = lake.loaded(lake.writer, "work.before")
    refused(lambda: lake.bucket(credential).put(f"{key_of(successor)}/data/late", b"x"))
    assert catalog.load_table("work.after").scan().to_arrow().num_rows == 1


def test_a_relocated_table_is_read_at_both_places_and_an_older_credential_stays_at_the_old_one(
    lake: KeylessLake, catalog: Catalog
) -> None:
    catalog.create_table("work.moving", SCHEMA).append(ROW)
    _, old = lake.loaded(lake.writer, "work.moving")
    target = f"{lake.root}/tables/default/default/main/work/moved"

    move = {"requirements": [], "updates": [{"action": "set-location", "location": target}]}
    headers = {"Authorization": f"Bearer {lake.writer.token}"}
    address = f"{lake.server.url}/v1/main/namespaces/work/tables/moving"
    answer = httpx.post(address, json=move, headers=headers, timeout=60)
    assert answer.is_success, answer.text
    catalog.load_table("work.moving").append(ROW)

    refused(lambda: lake.bucket(old).put(f"{key_of(target)}/data/late", b"x"))
    assert catalog.load_table("work.moving").scan().to_arrow().num_rows == 2
    assert lake.keys_below(target)


def test_every_answer_has_the_credential_of_its_own_table_while_tables_are_created_again(
    lake: KeylessLake, catalog: Catalog
) -> None:
    catalog.create_table("work.flapping", SCHEMA)
    is_over = threading.Event()
    failures: list[str] = []

    def load() -> None:
        while not is_over.is_set():
            try:
                location, credential = lake.loaded(lake.writer, "work.flapping")
                lake.bucket(credential).put(f"{key_of(location)}/data/probe", b"x")
            except httpx.HTTPStatusError as error:
                if error.response.status_code != httpx.codes.NOT_FOUND:
                    failures.append(str(error))
            except (AssertionError, BaseError) as error:
                failures.append(str(error))

    threads = [threading.Thread(target=load) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(ROUNDS):
        catalog.drop_table("work.flapping")
        catalog.create_table("work.flapping", SCHEMA)
    is_over.set()
    for thread in threads:
        thread.join()

    assert failures == []
