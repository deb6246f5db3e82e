"""The pages of catalogs and namespaces: what is in them, page by page."""

from collections.abc import Mapping, Sequence
from typing import Final, get_args

import msgspec

from sandur.catalog.identifiers import Identifier, Kind, Namespace
from sandur.catalog.paging import Page
from sandur.operations.browse import ContentEntry, Description
from sandur.server.ui.links import FOLDERS, catalog_link, namespace_link, object_link, page_link
from sandur.server.ui.renderer import Crumb, View

KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Tab(msgspec.Struct, frozen=True):
    """One of several pages about the same thing."""

    text: str
    link: str
    is_current: bool = False


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """An object in a list. Rows and bytes are None if nothing was published about it."""

    name: str
    link: str
    kind: str = ""
    format: str = ""
    owner: str = ""
    comment: str = ""
    updated_ms: int = 0
    rows: int | None = None
    bytes: int | None = None


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    """A page of a list; links are empty where there is no other page."""

    rows: Sequence[Row] = ()
    first_link: str = ""
    next_link: str = ""


class CatalogView(View, frozen=True, kw_only=True):
    catalog: Description
    namespaces: Listing
    begins: str = ""


class NamespaceView(View, frozen=True, kw_only=True):
    """A namespace. `published_ms` is when rows and bytes were published; 0 if nothing was."""

    namespace: Description
    tabs: tuple[Tab, ...]
    kind: str
    children: Listing
    names: Listing
    begins: str = ""
    published_ms: int = 0


def catalog_view(catalog: Description, page: Page[ContentEntry], *, is_later: bool, begins: str) -> CatalogView:
    rows = [row_of(entry, namespace_link(Namespace(catalog.name, (entry.name,)))) for entry in page.entries]
    return CatalogView(
        title=catalog.name,
        crumbs=container_crumbs(Namespace(catalog.name, ()))[:-1],
        catalog=catalog,
        namespaces=Listing(
            rows=rows,
            first_link=catalog_link(catalog.name) if is_later or begins else "",
            next_link=catalog_link(catalog.name, after=page.next_token) if page.next_token else "",
        ),
        begins=begins,
    )


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """Which part of a namespace is shown: names of one kind, from a text on, or a later page.

    `sizes` are the rows and bytes of tables by their ids, as they were published at `published_ms`.
    """

    kind: str = ""
    begins: str = ""
    is_later: bool = False
    has_earlier_children: bool = False
    published_ms: int = 0
    sizes: Mapping[str, tuple[int | None, int | None]] = {}


def namespace_view(
    namespace: Namespace, described: Description, children: Page[ContentEntry], names: Page[ContentEntry], shown: Shown
) -> NamespaceView:
    kind, begins, sizes = shown.kind, shown.begins, shown.sizes
    here = [
        row_of(entry, object_link(Identifier(*namespace, entry.name), entry.kind), *sizes.get(entry.id, (None, None)))
        for entry in names.entries
    ]
    below = [
        row_of(entry, namespace_link(Namespace(namespace.catalog, (*namespace.levels, entry.name))))
        for entry in children.entries
    ]
    tabs = [Tab("all", namespace_link(namespace), not kind)]
    tabs += [Tab(folder, namespace_link(namespace, kind=one), one == kind) for one, folder in FOLDERS.items()]
    return NamespaceView(
        title=namespace.levels[-1],
        crumbs=container_crumbs(namespace)[:-1],
        namespace=described,
        tabs=tuple(tabs),
        kind=kind,
        children=Listing(
            rows=below,
            first_link=namespace_link(namespace, kind=kind) if shown.has_earlier_children else "",
            next_link=namespace_link(namespace, kind=kind, children=children.next_token) if children.next_token else "",
        ),
        names=Listing(
            rows=here,
            first_link=namespace_link(namespace, kind=kind) if shown.is_later or begins else "",
            next_link=namespace_link(namespace, kind=kind, after=names.next_token) if names.next_token else "",
        ),
        begins=begins,
        published_ms=shown.published_ms,
    )


def container_crumbs(namespace: Namespace) -> tuple[Crumb, ...]:
    """The catalog, and every level of the namespace."""
    levels = [
        Crumb(level, namespace_link(Namespace(namespace.catalog, namespace.levels[: depth + 1])))
        for depth, level in enumerate(namespace.levels)
    ]
    return (Crumb("Data", page_link("/")), Crumb(namespace.catalog, catalog_link(namespace.catalog)), *levels)


def row_of(entry: ContentEntry, link: str, rows: int | None = None, size: int | None = None) -> Row:
    return Row(
        name=entry.name,
        link=link,
        kind=entry.kind,
        format=entry.format,
        owner=entry.owner,
        comment=entry.comment,
        updated_ms=entry.updated_ms,
        rows=rows,
        bytes=size,
    )
