"""Stores and files by address: opens stores, and finds the store that holds a file."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from sandur.catalog.locations import is_within, normalize_location, not_allowed
from sandur.clock import Clock
from sandur.errors import BadRequest, Invalid, Unavailable, Unfit
from sandur.settings import Settings
from sandur.storage.contract import ABSENT, ObjectStore, folders_of
from sandur.storage.keys import PREFIX_BYTES_MAX, validate_key
from sandur.storage.local import INTERNALS, LocalStore
from sandur.storage.memory import MemoryStore
from sandur.storage.pace import PacedStore
from sandur.storage.retry import RetryingStore
from sandur.storage.shared_reads import SharingStore

_CLOUDS: Final[Mapping[str, Literal["s3", "gs", "az"]]] = {
    **dict.fromkeys(("s3", "s3a"), "s3"),
    **dict.fromkeys(("gs", "gcs"), "gs"),
    **dict.fromkeys(("az", "abfs", "abfss", "azure"), "az"),
}


def connect(settings: Settings, clock: Clock, url: str | None = None, *, creates: bool = True) -> ObjectStore:
    """The store of the settings, or that of another address, with retries; a bucket keeps a pace and shares reads."""
    store = open_store(url or settings.store, settings, creates=creates)
    if isinstance(store, LocalStore | MemoryStore):
        return RetryingStore(store, clock, settings.retry)
    return SharingStore(RetryingStore(PacedStore(store, settings.retry), clock, settings.retry))


def open_store(url: str, settings: Settings, *, creates: bool = True) -> ObjectStore:
    """The store at an address, without retries.

    The address is a folder, `file://…`, `s3://bucket/prefix`, `gs://bucket/prefix`, `az://container/prefix` or
    `memory:`. With `creates` false, a folder must be a store already; otherwise Unfit is raised.
    """
    if url == "memory:":
        return MemoryStore()
    if "://" not in url and not url.startswith("file:"):
        return _open_folder(url, Path(url).expanduser(), settings, creates=creates)
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc not in {"", "localhost"}:
            raise BadRequest(f"store {url}: a file address must not name a host, found {parts.netloc!r}")
        return _open_folder(url, Path(unquote(parts.path)), settings, creates=creates)
    cloud = _CLOUDS.get(parts.scheme)
    if cloud is None:
        raise BadRequest(
            f"store {url}: expected a folder, file://, s3://, gs://, az:// or memory:, found {parts.scheme}://"
        )
    if not parts.netloc:
        raise BadRequest(f"store {url}: the bucket is missing")
    if prefix := parts.path.strip("/"):
        validate_key(prefix)
    if len(prefix.encode()) > PREFIX_BYTES_MAX:
        raise BadRequest(f"store {url}: the prefix has more than {PREFIX_BYTES_MAX} bytes")
    from sandur.storage.cloud import open_bucket  # noqa: PLC0415 - imports obstore, and a command must start fast

    return open_bucket(cloud, parts.netloc.partition("@")[0], prefix, settings)


def _open_folder(url: str, folder: Path, settings: Settings, *, creates: bool) -> LocalStore:
    if not creates and not (folder / INTERNALS).is_dir():
        raise Unfit(f"store {url} does not exist; `sandur serve` and `sandur catalog create` create it")
    return LocalStore(folder, fsync=settings.fsync)


class Locations:
    """Reads and writes files by address.

    `own` is the address of the catalog's store; `others` are further allowed roots, opened on first use.
    """

    def __init__(
        self, own: str, store: ObjectStore, *, others: Sequence[str] = (), open_store: Callable[[str], ObjectStore]
    ) -> None:
        self.own = own
        self._stores: dict[str, ObjectStore] = {own: store}
        self._open_store = open_store
        self.others: Sequence[str] = [address_of(other) for other in others]

    async def read(self, location: str) -> bytes | None:
        """The bytes of a file; None if it does not exist."""
        store, key = self.holder(location)
        found = await store.get(key)
        return found.data if found else None

    async def exists(self, location: str) -> bool:
        store, key = self.holder(location)
        if store.has_instant_reads:
            with contextlib.suppress(Unavailable):  # The store's own call retries.
                return store.version_now(key) is not None
        return await store.head(key) is not None

    async def create(self, location: str, data: bytes) -> None:
        """Write a new file. Raises SwapLost if it exists."""
        store, key = self.holder(location)
        await store.put(key, data, expected=ABSENT)

    async def remove(self, location: str) -> bool:
        """Remove a file. Returns whether it existed."""
        store, key = self.holder(location)
        listed = await store.head(key)
        if listed is None:
            return False
        await store.delete(key, expected=listed.version)
        return True

    def make_folders(self, *locations: str) -> None:
        """Create folders if the store has folders: some engines write only into existing ones."""
        for location in locations:
            store, key = self.holder(location)
            if folders := folders_of(store):
                folders.make_folder(key)

    def remove_empty_folder(self, location: str) -> bool:
        """Remove an unused folder that `make_folders` created. Returns whether it is gone."""
        try:
            store, key = self.holder(location)
        except Invalid:  # The location is no longer allowed, so it is not ours to clean up.
            return False
        folders = folders_of(store)
        return folders is not None and folders.remove_empty_folder(key)

    async def close(self) -> None:
        for address, store in self._stores.items():
            if address != self.own:
                await store.close()

    def holder(self, location: str) -> tuple[ObjectStore, str]:
        """The store of a file, and the file's key in it. Raises Invalid if the location is not allowed."""
        plain = normalize_location(location)
        roots = [root for root in (self.own, *self.others) if is_within(plain, root) and plain != root]
        if not roots:
            raise not_allowed(location, (self.own, *self.others))
        # The own store first, then the longest root: a file is always accessed through the same store.
        root = self.own if self.own in roots else max(roots, key=len)
        if root not in self._stores:
            self._stores[root] = self._open_store(root)
        return self._stores[root], plain[len(root.rstrip("/")) + 1 :]


def address_of(url: str) -> str:
    """The normalized address of a store's URL; the path of a folder becomes absolute."""
    if url == "memory:":
        return "memory://store"
    if "://" not in url and not url.startswith("file:"):
        folder = Path(url).expanduser()
        # Only with "..", which no location may have: a symbolic link keeps its own name otherwise.
        return normalize_location(str(folder.resolve() if ".." in folder.parts else folder.absolute()))
    return normalize_location(url)
