"""A store in a folder: plain files that survive a crash and are swapped safely across processes.

The version of a file is its modification time in nanoseconds. The store sets it: always later than the version it
replaces, and later than any deleted version of that key. Everything else about a file is as the caller wrote it, so
engines read and write files next to the catalog's own.
"""

import asyncio
import contextlib
import fcntl
import heapq
import os
import stat
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, Literal, TypeVar

from sandur.errors import BadRequest, OutcomeUnknown, SwapLost, Unavailable
from sandur.storage.contract import (
    ABSENT,
    LIST_LIMIT_MAX,
    UNCHANGED,
    Expected,
    Listed,
    Stored,
    Unchanged,
    Version,
    check_size,
)
from sandur.storage.keys import validate_key, validate_prefix

T = TypeVar("T")

Fsync = Literal["always", "never"]

INTERNALS: Final = ".sandur"
"""The store's own folder below the root: locks, and files that are being written. No key starts with it."""

_LOCKS: Final = 256
_THREADS_MAX: Final = 32
_INLINE_READ_BYTES_MAX: Final = 1 << 20
_FOLDER_TRIES_MAX: Final = 100
_REMOVED_FOLDERS_MAX: Final = 1_000
_PATHS_MAX: Final = 20_000
_SORTED_SHARE: Final = 8
_LEFTOVER_AGE_SECONDS: Final = 24 * 3600

_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """Files below `root`.

    With `fsync="always"` a write is on the disk when `put` returns: the bytes are synced before the rename that makes
    them visible, and the folder after it. With `"never"` a write survives the death of the process but not a power cut.
    Writes run in threads, so that the writes of one round are synced at the same time and the event loop never waits
    for the disk. Small reads run in the event loop.
    """

    has_instant_reads = True

    def __init__(self, root: Path | str, *, fsync: Fsync = "always") -> None:
        self._root = str(Path(root).absolute())
        self._prefix = self._root.rstrip("/") + "/"
        self._internals = self._prefix + INTERNALS
        self._syncs = fsync == "always"
        # Folders that were removed when empty; True for those that were created again since and now stay.
        self._removed_folders: dict[str, bool] = {}
        self._paths: dict[str, str] = {}  # Of the keys that were checked: warm loads use the same ones again.
        self._threads = ThreadPoolExecutor(_THREADS_MAX, thread_name_prefix="sandur-local")
        try:
            for folder in ("locks", "writing"):
                Path(self._internals, folder).mkdir(parents=True, exist_ok=True)
            self._remove_leftovers()
        except OSError as error:
            raise Unavailable(f"folder {self._root}: cannot be used as a store: {error}") from error

    @property
    def folders(self) -> "LocalStore":
        return self

    def make_folder(self, key: str) -> None:
        path = self._path(key)
        # A concurrent delete may remove an empty parent between two steps.
        for _ in range(_FOLDER_TRIES_MAX):
            self._check_folder()
            try:
                for missing in self._missing_folders(path):
                    os.mkdir(missing)
            except FileNotFoundError:
                continue
            except (FileExistsError, NotADirectoryError) as error:
                if isinstance(error, FileExistsError) and os.path.isdir(error.filename):
                    continue  # Another writer was faster.
                raise BadRequest(f"key {key}: a folder and a file would have the same name: {error}") from error
            except OSError as error:
                raise Unavailable(f"folder {key}: cannot be created: {error}") from error
            return
        raise Unavailable(f"folder {key}: vanished {_FOLDER_TRIES_MAX} times")

    def remove_empty_folder(self, key: str) -> bool:
        path = self._path(key)
        self._removed_folders.pop(path, None)
        self._remove_empty_folders(path)
        return not os.path.exists(path)

    def version_now(self, key: str) -> Version | None:
        status = _status(self._path(key))
        if status is None:
            self._check_folder()
        return _version(status) if status else None

    async def get(self, key: str) -> Stored | None:
        path = self._path(key)
        try:
            found = _load(path, size_max=_INLINE_READ_BYTES_MAX)
        except _TooLarge as large:
            check_size(key, large.size_bytes)
            # The thread opens the file itself: if the task opened it and were cancelled, it would close the descriptor,
            # and the system could give its number to another file while the thread still reads.
            found = await self._in_thread(lambda: _load(path, size_max=sys.maxsize))
        if found is None:
            self._check_folder()
        return found

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        status = _status(self._path(key))
        return UNCHANGED if status and _version(status) == seen else await self.get(key)

    async def are_current(self, versions: Sequence[tuple[str, Version]]) -> bool:
        try:
            for key, version in versions:  # A warm load waits for this loop: without calls of other functions.
                status = os.stat(self._paths.get(key) or self._path(key))
                if str(status.st_mtime_ns) != version or stat.S_ISDIR(status.st_mode):
                    return False
        except _NOT_THERE:
            return False
        except OSError as error:
            raise Unavailable(f"the versions of objects cannot be read: {error}") from error
        return True

    async def head(self, key: str) -> Listed | None:
        status = _status(self._path(key))
        if status is None:
            self._check_folder()
        return _listed(key, status) if status else None

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        path = self._path(key)
        # A swap that is already lost costs one stat, not a written file.
        _expect(key, _status(path), expected)
        if not self._syncs:  # The write does not wait for the disk: a thread would cost more than the write.
            with contextlib.suppress(_LockHeld):
                return self._write(key, path, data, expected, waits=False)
        return await self._in_thread(lambda: self._write(key, path, data, expected))

    async def delete(self, key: str, *, expected: Version) -> None:
        path = self._path(key)
        if not self._syncs:
            with contextlib.suppress(_LockHeld):
                return self._remove(key, path, expected, waits=False)
        return await self._in_thread(lambda: self._remove(key, path, expected))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        if validate_prefix(prefix):
            self._path(prefix[:-1])
        if after is not None and not after.startswith(prefix):
            if after > prefix:
                return []
            after = None
        behind = "" if after is None else after[len(prefix) :]
        try:
            found = await self._in_thread(lambda: list(islice(self._walk(prefix, behind, limit), limit)))
        except OSError as error:
            raise Unavailable(f"folder {prefix}: cannot be listed: {error}") from error
        if not found:
            self._check_folder()
        return found

    async def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def _in_thread(self, function: Callable[[], T]) -> T:
        """Run the function in a thread. If the task is cancelled, the function still runs to its end.

        `run_in_executor` hands a result over through a second future: that took 6 % of the CPU time of a commit.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._threads.submit(_run, function, future, loop)
        return await future

    def _check_folder(self) -> None:
        """Raise Unavailable if the store itself is gone, deleted or unmounted: that says nothing about its objects."""
        if not os.path.isdir(self._internals):
            raise Unavailable(f"folder {self._root}: is not there, or is no longer a store")

    def _path(self, key: str) -> str:
        path = self._paths.get(key)
        if path is None:
            if key.startswith(INTERNALS) and key.partition("/")[0] == INTERNALS:
                raise BadRequest(f"key {key!r}: {INTERNALS} is the store's own folder")
            path = self._prefix + validate_key(key)
            if len(self._paths) >= _PATHS_MAX:
                self._paths.clear()
            self._paths[key] = path
        return path

    def _write(self, key: str, path: str, data: bytes, expected: Expected, *, waits: bool = True) -> Version:
        """Write a new file, sync it, and rename it under the lock of the key; _LockHeld if it may not wait for that."""
        written = f"{self._internals}/writing/{os.urandom(12).hex()}"
        version_ns = time.time_ns()  # noqa: TID251 - a version, not a time: nothing is ordered or aged by it
        try:
            self._write_aside(written, data, version_ns)
            with self._locked(key, waits=waits) as lock:
                status = _status(path)
                _expect(key, status, expected)
                later_ns = max(os.fstat(lock).st_mtime_ns, status.st_mtime_ns if status else 0) + 1
                if version_ns < later_ns:  # The system's clock went back or stands still.
                    version_ns = later_ns
                    os.utime(written, ns=(version_ns, version_ns))
                    if self._syncs:
                        _sync(written)
                self._rename(key, written, path)
        except BaseException as error:
            with contextlib.suppress(OSError):  # A later start removes a file that stays.
                os.unlink(written)
            if isinstance(error, OSError):
                raise Unavailable(f"object {key}: cannot be written: {error}") from error
            raise
        self._sync_folder_of(key, path)
        return Version(str(version_ns))

    def _write_aside(self, written: str, data: bytes, version_ns: int) -> None:
        descriptor = os.open(written, os.O_WRONLY | os.O_CLOEXEC | os.O_CREAT | os.O_EXCL, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.utime(descriptor, ns=(version_ns, version_ns))
            if self._syncs:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _rename(self, key: str, written: str, path: str) -> None:
        # A concurrent delete may remove the empty folder between mkdir and rename.
        for _ in range(_FOLDER_TRIES_MAX):
            try:
                os.rename(written, path)
            except FileNotFoundError:
                self._check_folder()
                self._make_folders(os.path.dirname(path))
            except (IsADirectoryError, NotADirectoryError) as error:
                if self._removed_folders.pop(path, False):  # It was kept, and may be empty.
                    self._remove_empty_folders(path)
                    continue
                raise BadRequest(f"key {key}: a folder and a file would have the same name: {error}") from error
            else:
                return
        raise Unavailable(f"object {key}: its folder vanished {_FOLDER_TRIES_MAX} times")

    def _make_folders(self, folder: str) -> None:
        for path in self._missing_folders(folder):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.mkdir(path)
                if path in self._removed_folders:
                    self._removed_folders[path] = True
                if self._syncs:
                    _sync(os.path.dirname(path))

    def _missing_folders(self, folder: str) -> Sequence[str]:
        """The folders to make, outermost first. Never the store itself: it may be unmounted, and come back."""
        missing: list[str] = []
        while folder != self._root and not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        return missing[::-1]

    def _remove(self, key: str, path: str, expected: Version, *, waits: bool = True) -> None:
        try:
            with self._locked(key, waits=waits) as lock:
                status = _status(path)
                _expect(key, status, expected)
                if status and status.st_mtime_ns > os.fstat(lock).st_mtime_ns:  # Raise the floor.
                    os.utime(lock, ns=(status.st_mtime_ns, status.st_mtime_ns))
                    if self._syncs:
                        os.fsync(lock)
                os.unlink(path)
        except OSError as error:
            raise Unavailable(f"object {key}: cannot be deleted: {error}") from error
        self._remove_empty_folders(os.path.dirname(path))
        self._sync_folder_of(key, path)

    def _remove_empty_folders(self, folder: str) -> None:
        """Remove a folder and its parents while they are empty, except those that were removed once and came back."""
        while len(folder) > len(self._root) and not self._removed_folders.get(folder):
            try:
                os.rmdir(folder)
            except OSError:  # Not empty, or gone: either way the parents stay.
                return
            self._removed_folders[folder] = False
            if len(self._removed_folders) > _REMOVED_FOLDERS_MAX:
                with contextlib.suppress(
                    RuntimeError, StopIteration
                ):  # Another thread changes the dict: it evicts, too.
                    self._removed_folders.pop(next(iter(self._removed_folders)), None)
            folder = os.path.dirname(folder)

    @contextlib.contextmanager
    def _locked(self, key: str, *, waits: bool = True) -> Iterator[int]:
        """Hold the lock of the key, across threads and processes; yields the descriptor of the lock file.

        The modification time of the lock file is the floor: every new version is later. Deletes raise it, so a key that
        is created again gets a version that it never had, even if the system's clock went back.
        """
        lock = f"{self._internals}/locks/{zlib.crc32(key.encode()) % _LOCKS:02x}"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                raise _LockHeld from None
            yield descriptor
        finally:
            os.close(descriptor)

    def _sync_folder_of(self, key: str, path: str) -> None:
        if not self._syncs:
            return
        folder = os.path.dirname(path)
        while True:
            try:
                _sync(folder)
            except FileNotFoundError:  # The folder was deleted meanwhile: sync its parent.
                folder = os.path.dirname(folder)
            except OSError as error:
                raise OutcomeUnknown(f"object {key}: changed, but perhaps not durably: {error}") from error
            else:
                return

    def _walk(self, prefix: str, after: str, wanted: int) -> Iterator[Listed]:
        """The files below the folder in the byte order of their keys, starting behind `after` (relative to it).

        The caller takes about `wanted` of them. Every name comes after the empty text.
        """
        try:
            with os.scandir(self._prefix + prefix) as entries:
                names = [entry.name + "/" if entry.is_dir() else entry.name for entry in entries]
        except _NOT_THERE:
            return
        names = [name for name in names if name > after or (name.endswith("/") and after.startswith(name))]
        for name in _in_order(names, wanted):
            if not prefix and name == INTERNALS + "/":
                continue
            if name.endswith("/"):
                yield from self._walk(prefix + name, after[len(name) :] if after.startswith(name) else "", wanted)
            elif status := _status(self._prefix + prefix + name):
                yield _listed(prefix + name, status)

    def _remove_leftovers(self) -> None:
        """Remove files that killed writers left, if they are so old that no writer still uses them."""
        now = time.time()  # noqa: TID251 - compared with the times of files, which no Clock gives
        with os.scandir(f"{self._internals}/writing") as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < now - _LEFTOVER_AGE_SECONDS:
                        os.unlink(entry.path)


def _run(function: Callable[[], T], future: "asyncio.Future[T]", loop: asyncio.AbstractEventLoop) -> None:
    try:
        settle = partial(future.set_result, function())
    except BaseException as error:  # noqa: BLE001 - raised in the task that waits
        settle = partial(future.set_exception, error)
    if not loop.is_closed():  # Nothing waits on a closed loop.
        loop.call_soon_threadsafe(lambda: None if future.done() else settle())


def _in_order(names: list[str], wanted: int) -> Iterator[str]:
    """The names in order. If about `wanted` of many are taken, the others are not sorted."""
    if len(names) > _SORTED_SHARE * wanted:
        first = heapq.nsmallest(wanted, names)
        yield from first
        names = [name for name in names if name > first[-1]]
    yield from sorted(names)


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except _NOT_THERE:
        return None
    except OSError as error:
        raise Unavailable(f"file {path}: cannot be examined: {error}") from error
    return None if stat.S_ISDIR(status.st_mode) else status


def _version(status: os.stat_result) -> Version:
    return Version(str(status.st_mtime_ns))


def _listed(key: str, status: os.stat_result) -> Listed:
    return Listed(key, _version(status), status.st_size, status.st_mtime_ns // 1_000_000)


def _expect(key: str, status: os.stat_result | None, expected: Expected) -> None:
    found = _version(status) if status else ABSENT
    if found != expected:
        raise SwapLost(f"object {key}: expected version {expected}, found {found}")


class _LockHeld(Exception):
    """Another thread or process holds the lock of the key, and the caller does not wait for it."""


class _TooLarge(Exception):
    """The object is larger than the caller reads in the event loop."""

    def __init__(self, size_bytes: int) -> None:
        super().__init__(size_bytes)
        self.size_bytes = size_bytes


def _load(path: str, *, size_max: int) -> Stored | None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except _NOT_THERE:
        return None
    except OSError as error:
        raise Unavailable(f"file {path}: cannot be opened: {error}") from error
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return None
        if status.st_size > size_max:
            raise _TooLarge(status.st_size)
        data = os.read(descriptor, status.st_size + 1)
        while len(data) < status.st_size and (more := os.read(descriptor, status.st_size - len(data))):
            data += more
        return Stored(data, _version(status))
    except OSError as error:
        raise Unavailable(f"file {path}: cannot be read: {error}") from error
    finally:
        os.close(descriptor)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
