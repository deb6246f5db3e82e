"""`/readyz`: fails with a reason while the store cannot be read or written, recovers by itself, and costs little."""

import asyncio
import contextlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from sandur.clock import SystemClock
from sandur.errors import Unavailable
from sandur.server.health import CHECK_EVERY_MS
from sandur.settings import RetrySettings, Settings
from sandur.storage.contract import ABSENT, list_all
from sandur.storage.layout import LOCATIONS_COMPLETE, STORE_FORMAT
from sandur.storage.memory import MemoryStore
from tests.fakes.spy_store import SpyStore
from tests.server.conftest import Catalogs
from tests.server.process import server_process
from tests.server.requests import create_table
from tests.server.test_app import FailingStore
from tests.servers.seaweedfs import BUCKET, choose_ports, seaweedfs

POLLS_MAX = 1_200


class LaterClock(SystemClock):
    """The system's clock, which a test can move forward."""

    def __init__(self) -> None:
        self.later_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() + self.later_ms

    def pass_check_interval(self) -> None:
        self.later_ms += CHECK_EVERY_MS


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


async def reason(client: httpx.AsyncClient, clock: LaterClock) -> str:
    """The reason of a new check; empty if the server is ready."""
    clock.pass_check_interval()
    answer = await client.get("/readyz")
    assert (answer.status_code == 200) == (answer.json() == {"status": "ready"})
    return str(answer.json().get("reason", ""))


def settings(store: str, **others: object) -> Settings:
    retry = RetrySettings(tries_max=2, first_wait_ms=1, wait_max_ms=1)
    return Settings(store=store, fsync="never", retry=retry, **others)  # type: ignore[arg-type] # Given by name.


async def test_a_deleted_folder_is_not_ready_until_it_is_back(
    catalogs: Catalogs, clock: LaterClock, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    client = await catalogs.open_with(settings(str(folder)), clock=clock)
    await client.post("/v1/namespaces", json={"namespace": ["ns"]})
    await client.post("/v1/namespaces/ns/tables", json=create_table("t"))
    shutil.copytree(folder, tmp_path / "saved", copy_function=shutil.copy2)
    before = await reason(client, clock)

    shutil.rmtree(folder)
    deleted = await reason(client, clock)
    loads = [await client.get(f"/v1/namespaces/ns/tables{name}") for name in ("/t", "/other", "")]
    (tmp_path / "saved").rename(folder)
    restored = await reason(client, clock)

    assert before == restored == ""
    assert deleted == f"the store cannot be used: folder {folder}: is not there, or is no longer a store"
    assert [load.status_code for load in loads] == [503, 503, 503], "nothing is taken for absent"
    assert (await client.get("/v1/namespaces/ns/tables/t")).status_code == 200


def set_rights(path: str, mode: int) -> None:
    Path(path).chmod(mode)


@contextlib.contextmanager
def an_ordinary_user(folder: Path) -> Iterator[None]:
    """Rights do not bind root: a test that runs as root becomes the owner of the folder, who is somebody else."""
    if os.geteuid():
        yield
        return
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 65_534, -1)
    os.seteuid(65_534)
    try:
        yield
    finally:
        os.seteuid(0)


async def test_revoked_rights_are_not_ready_until_they_are_granted_again(catalogs: Catalogs, clock: LaterClock) -> None:
    # The folders of `tmp_path` are closed to other users.
    with tempfile.TemporaryDirectory() as folder:
        writing = f"{folder}/.sandur/writing"
        client = await catalogs.open_with(settings(folder, janitors=False), clock=clock)
        with an_ordinary_user(Path(folder)):
            before = await reason(client, clock)
            set_rights(writing, 0o500)
            unwritable = await reason(client, clock)
            set_rights(folder, 0)
            unreadable = await reason(client, clock)
            set_rights(folder, 0o700)
            set_rights(writing, 0o700)
            granted = await reason(client, clock)

    assert before == granted == ""
    assert unwritable.startswith("the store cannot be written: ")
    assert unreadable.startswith("the store cannot be used: ")
    assert "Permission denied" in unwritable
    assert "Permission denied" in unreadable


async def test_a_bucket_that_is_away_is_not_ready_until_it_is_back(
    catalogs: Catalogs, clock: LaterClock, tmp_path: Path
) -> None:
    ports = choose_ports()
    with seaweedfs(tmp_path, ports) as running:
        given = settings(f"s3://{BUCKET}/health", janitors=False, s3=running.s3)
        client = await catalogs.open_with(given, clock=clock)
        before = await reason(client, clock)
    away = await reason(client, clock)
    with seaweedfs(tmp_path, ports):
        back = await reason(client, clock)

    assert before == back == ""
    assert away.startswith(("the store cannot be used: ", "the store did not answer"))


def test_a_server_process_reports_a_deleted_folder_and_recovers(tmp_path: Path) -> None:
    with server_process(tmp_path, fsync="never") as running:
        (tmp_path / "data").rename(tmp_path / "away")
        failed = poll(f"{running.url}/readyz", 503)
        (tmp_path / "away").rename(tmp_path / "data")
        recovered = poll(f"{running.url}/readyz", 200)
        log = running.log

    assert "is not there, or is no longer a store" in failed.json()["reason"]
    assert recovered.json() == {"status": "ready"}
    assert "error not ready" in log
    assert "info ready again" in log


def poll(url: str, status: int) -> httpx.Response:
    answer = httpx.get(url, timeout=60)
    for _ in range(POLLS_MAX):
        if answer.status_code == status:
            break
        subprocess.run(["sleep", "0.05"], check=True)  # noqa: S607 - a process is waited for
        answer = httpx.get(url, timeout=60)
    assert answer.status_code == status, answer.text
    return answer


async def test_a_store_that_only_refuses_writes_is_not_ready(catalogs: Catalogs, clock: LaterClock) -> None:
    store = FailingStore()
    client = await catalogs.open_with(Settings(store="memory:", deliveries=False), store, clock=clock)

    with capture_logs() as logs:
        store.error, store.only_writes = Unavailable("the disk is full"), True
        full = [await reason(client, clock) for _ in range(2)]
        store.error = None
        freed = await reason(client, clock)

    assert full == ["the store cannot be written: the disk is full"] * 2
    assert freed == ""
    # The receipt that follows the creation of the default catalog may fail meanwhile.
    said = [(line["log_level"], line["event"]) for line in logs if line["event"] != "work failed"]
    assert said == [("error", "not ready"), ("info", "ready again")]
    page = (await client.get("/metrics")).text
    assert 'sandur_store_checks_total{result="failed"} 2.0' in page
    assert 'sandur_store_checks_total{result="ok"} 1.0' in page


async def test_a_mistake_in_a_store_is_not_ready_and_logged_with_its_trace(
    catalogs: Catalogs, clock: LaterClock
) -> None:
    store = FailingStore()
    client = await catalogs.open_with(Settings(store="memory:", deliveries=False), store, clock=clock)

    with capture_logs() as logs:
        store.error = RuntimeError("a mistake")
        broken = await reason(client, clock)
        store.error = None

    assert broken == "the check of the store failed: RuntimeError: a mistake"
    # The receipt that follows the creation of the default catalog may fail meanwhile.
    traced = [line["event"] for line in logs if line.get("exc_info") and line["event"] != "work failed"]
    assert traced == ["check of the store"]


async def test_many_requests_share_one_check_that_leaves_nothing(catalogs: Catalogs, clock: LaterClock) -> None:
    kept = MemoryStore()
    spy = SpyStore(kept)
    client = await catalogs.open_with(Settings(store="memory:"), spy, clock=clock)
    spy.calls.clear()

    for _ in range(3):
        clock.pass_check_interval()
        answers = await asyncio.gather(*(client.get("/readyz") for _ in range(10)))
        assert {answer.status_code for answer in answers} == {200}
    checked = [call.name for call in spy.calls if call.key == "_readiness"]

    assert checked == ["get", "head", "put", "delete"] * 3
    assert [listed.key for listed in await list_all(kept, "") if not listed.key.startswith("tenant=")] == [
        STORE_FORMAT,
        LOCATIONS_COMPLETE,
    ]


async def test_a_check_removes_what_a_killed_server_left(catalogs: Catalogs, clock: LaterClock) -> None:
    store = MemoryStore()
    client = await catalogs.open_with(Settings(store="memory:", deliveries=False), store, clock=clock)
    await store.put("_readiness", b"left", expected=ABSENT)

    assert await reason(client, clock) == ""
    assert await store.get("_readiness") is None


async def test_with_authentication_only_the_log_has_the_reason(catalogs: Catalogs, clock: LaterClock) -> None:
    store = FailingStore()
    client = await catalogs.open_with(Settings(store="memory:", authentication="on"), store, clock=clock)

    with capture_logs() as logs:
        store.error = Unavailable("bucket secret-bucket is away")
        answered = await reason(client, clock)
        store.error = None

    assert answered == "the store cannot be used; see the server log"
    assert [line["reason"] for line in logs if line["event"] == "not ready"] == [
        "the store cannot be used: bucket secret-bucket is away"
    ]
