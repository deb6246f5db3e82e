"""Lists, page by page, from the index."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple

from sandur.catalog.identifiers import Kind, Namespace
from sandur.catalog.index import Entry, Scope, names_scope
from sandur.catalog.paging import checked_page_size, decode_page_token, encode_page_token
from sandur.operations.index_pages import EntriesPage, entries_page, glance
from sandur.operations.lake import Lake
from sandur.operations.namespace_changes import missing
from sandur.operations.tables.load import Page
from sandur.operations.tables.names import resolve_namespace


class PageRequest(NamedTuple):
    """Which part of a list a client asks for: without a token everything, with an empty one the first page."""

    token: str | None
    size: int | None


async def list_names(
    lake: Lake, namespace: Namespace, *, kind: Kind, page_token: str | None, page_size: int | None
) -> Page[Entry]:
    """What has a name of one kind in a namespace; NotFound when the namespace does not exist."""
    listing = Listing(lake, names_scope(namespace), kind, PageRequest(page_token, page_size))
    page = await listing.read(beside=must_exist(lake, namespace))
    return Page(page.entries, listing.next_token(page))


def _is_for_iceberg(entry: Entry) -> bool:
    """Whether an Iceberg client could use what it is shown: a table or view of another format it could not load."""
    return entry.kind not in {"table", "view"} or entry.format == "iceberg"


async def must_exist(lake: Lake, namespace: Namespace) -> None:
    if await resolve_namespace(lake, namespace) is None:
        raise missing(namespace)


class Listing:
    """One request for a list. What it asks for is checked before anything is read."""

    def __init__(self, lake: Lake, scope: Scope, kind: str, request: PageRequest) -> None:
        self._lake = lake
        self._scope = scope
        self._kind = kind
        self._what = (lake.layout.root, kind, scope.text)
        size = checked_page_size(request.size)
        self._wanted = None if request.token is None else size
        self._last = decode_page_token(request.token, self._what) if request.token else None

    async def read(self, *, beside: Awaitable[object]) -> EntriesPage:
        """The page; `beside` is done in the same round, and what it raises is raised."""
        first_look = glance(self._lake, self._scope, last=self._last, wanted=self._wanted)
        _, seen = await asyncio.gather(beside, first_look)
        return await entries_page(
            self._lake,
            self._scope,
            last=self._last,
            wanted=self._wanted,
            accepts=lambda entry: entry.kind == self._kind and _is_for_iceberg(entry),
            seen=seen,
            kept_as=self._kind,
        )

    def next_token(self, page: EntriesPage) -> str | None:
        return None if page.next_last is None else encode_page_token(self._what, page.next_last)
