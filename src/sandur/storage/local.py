"""A store in a folder: plain files that survive a crash and swap safely across processes.

A file's version is its modification time in nanoseconds, which the store sets itself: always later than the version it
replaces and than any version of that key deleted before. Everything else about a file is as the caller sees it, so
engines read and write beside the catalog without knowing of it.
"""

import contextlib
import fcntl
import os
import stat
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from sandur.errors import BadRequest, OutcomeUnknown, SwapLost, Unavailable
from sandur.storage.contract import ABSENT, LIST_LIMIT_MAX, UNCHANGED, Expected, Listed, Stored, Unchanged, Version
from sandur.storage.exchange import exchanged
from sandur.storage.keys import validate_key, validate_prefix
from sandur.storage.threads import Threads

Fsync = Literal["always", "never"]

INTERNALS: Final = ".sandur"
"""The store's own folder below the root: locks and files being written. No key begins with it."""

_LOCKS: Final = 256
_THREADS_MAX: Final = 32
_INLINE_READ_BYTES_MAX: Final = 1 << 20
_FOLDER_TRIES_MAX: Final = 100
_READ_TRIES_MAX: Final = 100
_SPARES_MAX: Final = 32
_SPARE_BYTES_MAX: Final = 64 << 10
_FOLDERS_REMEMBERED_MAX: Final = 1_000
_LEFTOVER_AGE_SECONDS: Final = 24 * 3600

_NOT_THERE = (FileNotFoundError, NotADirectoryError)


class LocalStore:
    """Files below `root`.

    With `fsync="always"` a write is on the disk when `put` returns: the bytes before the rename that shows them, the
    folder after it. Syncing happens in threads, so that writes of one round are synced at the same time and the event
    loop never waits for a disk. With `"never"` a write survives the death of the process but not a power cut.
    """

    def __init__(self, root: Path | str, *, fsync: Fsync = "always") -> None:
        self._root = str(Path(root).absolute())
        self._prefix = self._root.rstrip("/") + "/"
        self._internals = self._prefix + INTERNALS
        self._syncs = fsync == "always"
        self._spares: list[str] = []
        # Folders that were taken away when they were empty, and whether they were made again since: such a one stays.
        self._came_back: dict[str, bool] = {}
        self._threads = Threads(_THREADS_MAX, "sandur-local")
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
        # A delete may take an empty folder away between the steps, so they are tried again.
        for _ in range(_FOLDER_TRIES_MAX):
            try:
                os.makedirs(path, exist_ok=True)
            except FileNotFoundError:
                continue
            except (FileExistsError, NotADirectoryError) as error:
                raise BadRequest(f"key {key}: a folder and a file would have the same name: {error}") from error
            except OSError as error:
                raise Unavailable(f"folder {key}: cannot be made: {error}") from error
            return
        raise Unavailable(f"folder {key}: vanished {_FOLDER_TRIES_MAX} times")

    def remove_empty_folder(self, key: str) -> bool:
        path = self._path(key)
        self._came_back.pop(path, None)
        self._remove_empty_folders(path)
        return not os.path.exists(path)

    @property
    def looks(self) -> "LocalStore":
        return self

    def version_now(self, key: str) -> Version | None:
        status = _status(self._path(key))
        return _version(status) if status else None

    async def get(self, key: str) -> Stored | None:
        path = self._path(key)
        try:
            return _load(path, size_max=_INLINE_READ_BYTES_MAX)
        except _TooLarge:
            # The thread opens the file for itself: a task that is cancelled would close it, and its number would be
            # given to another file, while the thread still reads.
            return await self._threads.run(lambda: _load(path, size_max=sys.maxsize))

    async def get_if_changed(self, key: str, *, seen: Version) -> Stored | Unchanged | None:
        status = _status(self._path(key))
        if status is None:
            return None
        return UNCHANGED if _version(status) == seen else await self.get(key)

    async def head(self, key: str) -> Listed | None:
        status = _status(self._path(key))
        return _listed(key, status) if status else None

    async def put(self, key: str, data: bytes, *, expected: Expected) -> Version:
        path = self._path(key)
        # A swap that is lost already costs one look, not a written file.
        _expect(key, _status(path), expected)
        if self._syncs:
            return await self._threads.run(lambda: self._write(key, path, data, expected))
        with contextlib.suppress(BlockingIOError):
            return self._write(key, path, data, expected, waits=False)
        return await self._threads.run(lambda: self._write(key, path, data, expected))

    async def delete(self, key: str, *, expected: Version) -> None:
        path = self._path(key)
        if not self._syncs:
            with contextlib.suppress(BlockingIOError):
                return self._remove(key, path, expected, waits=False)
        return await self._threads.run(lambda: self._remove(key, path, expected))

    async def list(self, prefix: str, *, after: str | None = None, limit: int = LIST_LIMIT_MAX) -> Sequence[Listed]:
        if validate_prefix(prefix):
            self._path(prefix[:-1])
        if after is not None and not after.startswith(prefix):
            if after > prefix:
                return []
            after = None
        behind = None if after is None else after[len(prefix) :]
        try:
            return await self._threads.run(lambda: list(islice(self._walk(prefix, behind), limit)))
        except OSError as error:
            raise Unavailable(f"folder {prefix}: cannot be listed: {error}") from error

    async def close(self) -> None:
        self._threads.close()
        while self._spares:
            _discard(self._spares.pop())

    def _path(self, key: str) -> str:
        if key.startswith(INTERNALS) and key.partition("/")[0] == INTERNALS:
            raise BadRequest(f"key {key!r}: {INTERNALS} is the store's own folder")
        return self._prefix + validate_key(key)

    def _write(self, key: str, path: str, data: bytes, expected: Expected, *, waits: bool = True) -> Version:
        """Write aside, sync, and rename under the lock of the key."""
        written = self._spares.pop() if expected is not ABSENT and self._spares else None
        is_spare = written is not None
        written = written or f"{self._internals}/writing/{os.urandom(12).hex()}"
        version_ns = time.time_ns()  # noqa: TID251 - a version, not a time: nothing is ordered or aged by it
        try:
            self._write_aside(written, data, version_ns, is_spare=is_spare)
            with self._locked(key, waits=waits) as lock:
                status = _status(path)
                _expect(key, status, expected)
                later_ns = max(os.fstat(lock).st_mtime_ns, status.st_mtime_ns if status else 0) + 1
                if version_ns < later_ns:  # The clock went back, or stands.
                    version_ns = later_ns
                    self._set_version(written, version_ns)
                if status and not self._syncs and exchanged(written, path):
                    self._keep_spare(written, status.st_size)  # What the object was before.
                else:
                    self._rename(key, written, path)
        except BaseException as error:
            _discard(written)
            if isinstance(error, OSError) and not isinstance(error, BlockingIOError):
                raise Unavailable(f"object {key}: cannot be written: {error}") from error
            raise
        self._sync_folder_of(key, path)
        return Version(str(version_ns))

    def _keep_spare(self, written: str, size_bytes: int) -> None:
        """Keep a file that was replaced for the next swap to write over.

        A file system looks long for a new file's place when many were taken away a moment before. Who still reads the
        file notices that it is written over: its version is gone (`_load`).
        """
        if len(self._spares) < _SPARES_MAX and size_bytes <= _SPARE_BYTES_MAX:
            self._spares.append(written)
        else:
            _discard(written)

    def _write_aside(self, written: str, data: bytes, version_ns: int, *, is_spare: bool) -> None:
        flags = os.O_WRONLY | os.O_CLOEXEC | (0 if is_spare else os.O_CREAT | os.O_EXCL)
        descriptor = os.open(written, flags, 0o666)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if is_spare:
                os.ftruncate(descriptor, len(data))
            os.utime(descriptor, ns=(version_ns, version_ns))
            if self._syncs:
                os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _set_version(self, written: str, version_ns: int) -> None:
        os.utime(written, ns=(version_ns, version_ns))
        if self._syncs:
            _sync(written)

    def _rename(self, key: str, written: str, path: str) -> None:
        # A delete may take an empty folder away between the two steps, so they are tried again.
        for _ in range(_FOLDER_TRIES_MAX):
            try:
                os.rename(written, path)
            except FileNotFoundError:
                self._make_folders(os.path.dirname(path))
            except (IsADirectoryError, NotADirectoryError) as error:
                if self._came_back.pop(path, False):  # Kept, and perhaps empty.
                    self._remove_empty_folders(path)
                    continue
                raise BadRequest(f"key {key}: a folder and a file would have the same name: {error}") from error
            else:
                return
        raise Unavailable(f"object {key}: its folder vanished {_FOLDER_TRIES_MAX} times")

    def _make_folders(self, folder: str) -> None:
        missing: list[str] = []
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for path in reversed(missing):
            with contextlib.suppress(FileExistsError, FileNotFoundError):
                os.mkdir(path)
                if path in self._came_back:
                    self._came_back[path] = True
                if self._syncs:
                    _sync(os.path.dirname(path))

    def _remove(self, key: str, path: str, expected: Version, *, waits: bool = True) -> None:
        try:
            with self._locked(key, waits=waits) as lock:
                status = _status(path)
                _expect(key, status, expected)
                if status:
                    self._raise_floor(lock, status.st_mtime_ns)
                os.unlink(path)
        except BlockingIOError:
            raise
        except OSError as error:
            raise Unavailable(f"object {key}: cannot be deleted: {error}") from error
        self._remove_empty_folders(os.path.dirname(path))
        self._sync_folder_of(key, path)

    def _raise_floor(self, lock: int, version_ns: int) -> None:
        if version_ns > os.fstat(lock).st_mtime_ns:
            os.utime(lock, ns=(version_ns, version_ns))
            if self._syncs:
                os.fsync(lock)

    def _remove_empty_folders(self, folder: str) -> None:
        """Take a folder and those above it away as far as they are empty, but for those that come and go."""
        while len(folder) > len(self._root) and not self._came_back.get(folder):
            try:
                os.rmdir(folder)
            except OSError:  # Not empty, or gone: either way the folders above stay.
                return
            self._came_back[folder] = False
            if len(self._came_back) > _FOLDERS_REMEMBERED_MAX:
                with contextlib.suppress(RuntimeError, StopIteration):  # Another thread was at it: it forgets one, too.
                    self._came_back.pop(next(iter(self._came_back)), None)
            folder = os.path.dirname(folder)

    @contextlib.contextmanager
    def _locked(self, key: str, *, waits: bool = True) -> Iterator[int]:
        """Hold the lock of the key, across threads and processes; yields the descriptor of the lock's file.

        Its modification time is the floor above which versions are new. Deletes raise it, so that a key which is
        created again gets a version it never had, whatever the system's clock says by then.
        """
        lock = f"{self._internals}/locks/{zlib.crc32(key.encode()) % _LOCKS:02x}"
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
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
            except FileNotFoundError:  # Deleted again meanwhile, folder and all: what is left to sync is above.
                folder = os.path.dirname(folder)
            except OSError as error:
                raise OutcomeUnknown(f"object {key}: changed, but perhaps not durably: {error}") from error
            else:
                return

    def _walk(self, prefix: str, after: str | None) -> Iterator[Listed]:
        """The files below the folder in the byte order of their whole keys, beginning behind `after` (relative)."""
        try:
            with os.scandir(self._prefix + prefix) as entries:
                names = sorted(entry.name + "/" if entry.is_dir() else entry.name for entry in entries)
        except _NOT_THERE:
            return
        for name in names:
            if not prefix and name == INTERNALS + "/":
                continue
            if name.endswith("/"):
                if after is None or after < name:
                    yield from self._walk(prefix + name, None)
                elif after.startswith(name):
                    yield from self._walk(prefix + name, after[len(name) :])
            elif (after is None or name > after) and (status := _status(self._prefix + prefix + name)):
                yield _listed(prefix + name, status)

    def _remove_leftovers(self) -> None:
        """Take away what writers that were killed left behind, old enough that no writer is still at it."""
        now = time.time()  # noqa: TID251 - compared with the times of files, which no Clock gives
        with os.scandir(f"{self._internals}/writing") as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):
                    if entry.stat().st_mtime < now - _LEFTOVER_AGE_SECONDS:
                        os.unlink(entry.path)


def _status(path: str) -> os.stat_result | None:
    try:
        status = os.stat(path)
    except _NOT_THERE:
        return None
    except OSError as error:
        raise Unavailable(f"file {path}: cannot be examined: {error}") from error
    return None if stat.S_ISDIR(status.st_mode) else status


def _discard(written: str) -> None:
    """Take away a file that nobody sees. One that stays is taken away by a later start."""
    with contextlib.suppress(OSError):
        os.unlink(written)


def _version(status: os.stat_result) -> Version:
    return Version(str(status.st_mtime_ns))


def _listed(key: str, status: os.stat_result) -> Listed:
    return Listed(key, _version(status), status.st_size, status.st_mtime_ns // 1_000_000)


def _expect(key: str, status: os.stat_result | None, expected: Expected) -> None:
    found = _version(status) if status else ABSENT
    if found != expected:
        raise SwapLost(f"object {key}: expected version {expected}, found {found}")


class _TooLarge(Exception):
    """The object is larger than the caller will read here."""


def _load(path: str, *, size_max: int) -> Stored | None:
    for _ in range(_READ_TRIES_MAX):
        found = _loaded_once(path, size_max=size_max)
        if found is None:
            return None
        # A file that was replaced while it was read may have been written over (`_keep_spare`). A version never comes
        # back: is it the same before and behind the reading, so are the bytes.
        status = _status(path)
        if status and _version(status) == found.version:
            return found
    raise Unavailable(f"file {path}: replaced {_READ_TRIES_MAX} times while it was read")


def _loaded_once(path: str, *, size_max: int) -> Stored | None:
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
            raise _TooLarge
        return Stored(_read(descriptor, status.st_size), _version(status))
    except OSError as error:
        raise Unavailable(f"file {path}: cannot be read: {error}") from error
    finally:
        os.close(descriptor)


def _read(descriptor: int, size: int) -> bytes:
    data = os.read(descriptor, size + 1)
    while len(data) < size and (more := os.read(descriptor, size - len(data))):
        data += more
    return data


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
