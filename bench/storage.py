"""Compare the storage layer with its raw calls: a folder with fsync, and S3 through the same client."""

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import obstore
from obstore.store import S3Store

from bench.measurement import Timing, rate, save, show, timed_side_by_side
from sandur.catalog.record_versions import Record
from sandur.clock import SystemClock
from sandur.settings import Settings
from sandur.storage.cell import Cell
from sandur.storage.contract import ABSENT, Expected, ObjectStore
from sandur.storage.local import LocalStore
from sandur.storage.locations import open_store
from tests.servers.seaweedfs import BUCKET, seaweedfs

BODY: Final = b"x" * 500
AT_ONCE: Final = 16


class Counter(Record, frozen=True, kw_only=True):
    """The smallest cell."""

    text: str = "x" * 400


class Swaps:
    """Swaps one object repeatedly, each time with another body."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self.store, self.key, self.count = store, key, 0
        self.expected: Expected = ABSENT

    async def __call__(self) -> None:
        self.count += 1
        body = BODY + str(self.count).encode()
        self.expected = await self.store.put(self.key, body, expected=self.expected)


class CellSwaps:
    """The same through a typed cell."""

    def __init__(self, store: ObjectStore, key: str) -> None:
        self.cell = Cell(store, key, Counter, SystemClock())
        self.expected: Expected = ABSENT

    async def __call__(self) -> None:
        self.expected = (await self.cell.swap(Counter(), expected=self.expected)).version


class RawFile:
    """The same write by hand: a temporary file, fsync, rename, and optionally fsync of the folder."""

    def __init__(self, folder: Path, *, syncs_folder: bool) -> None:
        self.folder, self.syncs_folder = str(folder), syncs_folder

    async def __call__(self) -> None:
        written, path = self.folder + "/written", self.folder + "/object"
        descriptor = os.open(written, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(descriptor, BODY)
        os.fsync(descriptor)
        os.close(descriptor)
        os.rename(written, path)  # noqa: PTH104 - as raw as it gets
        if self.syncs_folder:
            descriptor = os.open(self.folder, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    async def read(self) -> bytes:
        descriptor = os.open(self.folder + "/object", os.O_RDONLY)
        data = os.read(descriptor, 1_000)
        os.close(descriptor)
        return data


class RawPut:
    """A conditional PUT through obstore alone."""

    def __init__(self, remote: S3Store, key: str) -> None:
        self.remote, self.key, self.etag, self.count = remote, key, "", 0

    async def __call__(self) -> None:
        self.count += 1
        mode = {"e_tag": self.etag} if self.etag else "create"
        body = BODY + str(self.count).encode()
        result = await obstore.put_async(self.remote, self.key, body, mode=mode, use_multipart=False)  # type: ignore[arg-type]  # a TypedDict
        self.etag = result["e_tag"] or ""

    async def read(self) -> bytes:
        result = await obstore.get_async(self.remote, self.key)
        return (await result.bytes_async()).to_bytes()


def reads(store: ObjectStore, key: str) -> Callable[[], Awaitable[object]]:
    return lambda: store.get(key)


async def local_folder(folder: Path) -> dict[str, object]:
    (folder / "raw").mkdir()
    store = LocalStore(folder / "store", fsync="always")
    unsynced = LocalStore(folder / "unsynced", fsync="never")
    raw, raw_folder = RawFile(folder / "raw", syncs_folder=False), RawFile(folder / "raw", syncs_folder=True)
    writes = await timed_side_by_side(
        {
            "raw write + fsync + rename": raw,
            "raw write + fsync + rename + folder fsync": raw_folder,
            "swap": Swaps(store, "bench/swap"),
            "swap of a cell": CellSwaps(store, "bench/cell"),
            "swap, fsync never": Swaps(unsynced, "bench/swap"),
        },
        rounds=30,
        batch=20,
    )
    found = await store.get("bench/swap")
    assert found
    gets = await timed_side_by_side(
        {
            "raw open + read": raw.read,
            "get": reads(store, "bench/swap"),
            "conditional get, unchanged": lambda: store.get_if_changed("bench/swap", seen=found.version),
        },
        rounds=50,
        batch=200,
    )
    counts = iter(range(1_000_000))
    creates = await rate(
        lambda: store.put(f"bench/many/{next(counts)}", BODY, expected=ABSENT), calls=1_000, at_once=AT_ONCE
    )
    _table("Local folder (fsync always unless said), 500 bytes", writes, "raw write + fsync + rename")
    _table("Local folder, reads of 500 bytes", gets, "raw open + read")
    print(
        f"Creates with {AT_ONCE} at once: {creates:,.0f}/s, one after the other: {writes['swap'].per_second:,.0f}/s\n"
    )
    await store.close()
    await unsynced.close()
    return {
        "local": {**writes, **gets},
        "local_creates_per_second": {f"{AT_ONCE} at once": round(creates)},
        "local_swap_over_raw": writes["swap"].median_us / writes["raw write + fsync + rename"].median_us,
        "local_get_overhead_us": gets["get"].median_us - gets["raw open + read"].median_us,
    }


async def s3(settings: Settings) -> dict[str, object]:
    store = open_store(f"s3://{BUCKET}/bench", settings)
    s3_settings = settings.s3
    remote = S3Store(
        BUCKET,
        prefix="raw",
        endpoint=s3_settings.endpoint,
        region=s3_settings.region,
        access_key_id=s3_settings.access_key_id,
        secret_access_key=s3_settings.secret_access_key,
        client_options={"allow_http": True},
    )
    raw, swaps = RawPut(remote, "object"), Swaps(store, "swap")
    writes = await timed_side_by_side(
        {"raw conditional PUT": raw, "swap": swaps, "swap of a cell": CellSwaps(store, "cell")}, rounds=30, batch=10
    )
    found = await store.get("swap")
    assert found
    gets = await timed_side_by_side(
        {
            "raw GET": raw.read,
            "get": reads(store, "swap"),
            "conditional get, unchanged": lambda: store.get_if_changed("swap", seen=found.version),
        },
        rounds=30,
        batch=20,
    )
    at_once = await rate(reads(store, "swap"), calls=2_000, at_once=AT_ONCE)
    _table("S3 (SeaweedFS), 500 bytes", writes, "raw conditional PUT")
    _table("S3 (SeaweedFS), reads of 500 bytes", gets, "raw GET")
    print(f"Gets with {AT_ONCE} at once: {at_once:,.0f}/s, one after the other: {gets['get'].per_second:,.0f}/s\n")
    await store.close()
    return {
        "s3": {**writes, **gets},
        "s3_gets_per_second": {f"{AT_ONCE} at once": round(at_once)},
        "s3_swap_over_raw": writes["swap"].median_us / writes["raw conditional PUT"].median_us,
        "s3_get_over_raw": gets["get"].median_us / gets["raw GET"].median_us,
    }


def _table(title: str, timings: Mapping[str, Timing], baseline: str) -> None:
    base = timings[baseline].median_us
    rows = [
        (
            name,
            f"{t.median_us:,.1f}",
            f"{t.p99_us:,.1f}",
            f"{t.cpu_us:,.1f}",
            f"{t.per_second:,.0f}",
            f"{t.median_us / base:.2f}×",
        )
        for name, t in timings.items()
    ]
    show(title, ("call", "median µs", "p99 µs", "CPU µs", "per second", "of raw"), rows)


def main() -> None:
    asyncio.run(_measure())


async def _measure() -> None:
    with tempfile.TemporaryDirectory(dir=".") as folder:
        result = await local_folder(Path(folder))
    with tempfile.TemporaryDirectory() as folder, seaweedfs(Path(folder)) as settings:
        result |= await s3(settings)
    goals = (
        ("local swap, of the raw write", result["local_swap_over_raw"], 2.0),
        ("local get, µs over the raw read", result["local_get_overhead_us"], 15.0),
        ("S3 swap, of the raw client", result["s3_swap_over_raw"], 1.1),
        ("S3 get, of the raw client", result["s3_get_over_raw"], 1.1),
    )
    show("Goals", ("", "found", "at most"), [(name, f"{found:.2f}", limit) for name, found, limit in goals])
    save("storage", {"settings": "folder with fsync unless a name says otherwise; S3 is SeaweedFS here", **result})


if __name__ == "__main__":
    main()
