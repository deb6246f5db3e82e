"""From the address of a file to the store that holds it: the catalog's own, or one of the allowed locations."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sandur.catalog.locations import is_within, normalize_location
from sandur.errors import Invalid
from sandur.storage.contract import ABSENT, ObjectStore, folders_of


class _Root(NamedTuple):
    address: str
    open: Callable[[], ObjectStore]


class Locations:
    """Files by their address.

    `own` is the address of the catalog's store; `others` are further roots, opened when first used.
    """

    def __init__(
        self, own: str, store: ObjectStore, *, others: Sequence[str] = (), open_store: Callable[[str], ObjectStore]
    ) -> None:
        self.own = own
        self._stores: dict[str, ObjectStore] = {own: store}
        self._open_store = open_store
        self._others = [normalize_location(other) for other in others]

    @property
    def others(self) -> Sequence[str]:
        """The allowed locations beyond the catalog's own store, normalized."""
        return self._others

    async def read(self, location: str) -> bytes | None:
        """The bytes of a file; None when it is not there."""
        store, key = self._at(location)
        found = await store.get(key)
        return found.data if found else None

    async def exists(self, location: str) -> bool:
        store, key = self._at(location)
        return await store.head(key) is not None

    def holder(self, location: str) -> tuple[ObjectStore, str]:
        """The store that holds a file, and the file's key there; Invalid when no store does."""
        return self._at(location)

    async def create(self, location: str, data: bytes) -> None:
        """Write a file that is not there yet; SwapLost when it is."""
        store, key = self._at(location)
        await store.put(key, data, expected=ABSENT)

    async def remove(self, location: str) -> bool:
        """Take a file away; whether it was there."""
        store, key = self._at(location)
        listed = await store.head(key)
        if listed is None:
            return False
        await store.delete(key, expected=listed.version)
        return True

    def make_folders(self, *locations: str) -> None:
        """Make folders where the store has any, for engines that write only into folders that are there."""
        for location in locations:
            store, key = self._at(location)
            if folders := folders_of(store):
                folders.make_folder(key)

    def remove_empty_folder(self, location: str) -> bool:
        """Take away what `make_folders` made and nobody used; whether it is gone."""
        try:
            store, key = self._at(location)
        except Invalid:  # A place that is no longer allowed is no longer ours to tidy.
            return False
        folders = folders_of(store)
        return folders is not None and folders.remove_empty_folder(key)

    async def close(self) -> None:
        for address, store in self._stores.items():
            if address != self.own:
                await store.close()

    def _at(self, location: str) -> tuple[ObjectStore, str]:
        plain = normalize_location(location)
        roots = [root for root in (self.own, *self._others) if is_within(plain, root) and plain != root]
        if not roots:
            raise Invalid(f"Invalid location {location}: it is not below {' or '.join((self.own, *self._others))}")
        # The catalog's own store first, then the longest: a file is always reached through the same store.
        root = self.own if self.own in roots else max(roots, key=len)
        if root not in self._stores:
            self._stores[root] = self._open_store(root)
        return self._stores[root], plain[len(root.rstrip("/")) + 1 :]


def address_of(url: str) -> str:
    """The normalized address of a store's URL; a folder becomes absolute."""
    if url == "memory:":
        return "memory://store"
    if "://" not in url and not url.startswith("file:"):
        return normalize_location(str(Path(url).expanduser().absolute()))
    return normalize_location(url)
