"""The pages of the metastore, of catalogs and of namespaces."""

from typing import Final

from sandur.catalog.identifiers import Namespace
from sandur.errors import BadRequest
from sandur.operations.browse import describe_catalog, describe_namespace, list_contents
from sandur.operations.explore.overview import load_overview, load_sizes
from sandur.server.context import Call
from sandur.server.http import Answer, Refused, decode_levels
from sandur.server.ui.links import ROOT
from sandur.server.ui.renderer import page
from sandur.server.ui.views.data import KINDS, Shown, catalog_view, namespace_view
from sandur.server.ui.views.home import home_view
from sandur.storage.cell import gather_all

PAGE_SIZE: Final = 200
_CHILDREN_SHOWN: Final = 50
_BEGINS_CHARS_MAX: Final = 255


async def show_home(call: Call) -> Answer:
    """The first page. The router leads every address that begins with the mount here, so the address is checked."""
    if call.http.path.rstrip(b"/") != ROOT.encode():
        raise Refused(404, "There is no such page")
    catalogs, overview = await gather_all(
        (list_contents(call.lake, None, page_token=_token(call), page_size=PAGE_SIZE), load_overview(call.lake))
    )
    return page(call, "home.html", home_view(catalogs, overview))


async def show_catalog(call: Call) -> Answer:
    name, begins, token = call.value("catalog"), _begins(call), _token(call)
    described, contents = await gather_all(
        (
            describe_catalog(call.lake, name),
            list_contents(call.lake, Namespace(name, ()), begins=begins, page_token=token, page_size=PAGE_SIZE),
        )
    )
    return page(call, "catalog.html", catalog_view(described, contents, is_later=bool(token), begins=begins))


async def show_namespace(call: Call) -> Answer:
    namespace, begins, token = namespace_of(call), _begins(call), _token(call)
    kind = next((one for one in KINDS if one == call.query.get("kind")), None)
    if kind is None and call.query.get("kind"):
        raise BadRequest(f"Invalid kind {call.query['kind'][:40]!r}: expected one of {', '.join(KINDS)}")
    children_token = call.query.get("children") or None
    described, children, names, published = await gather_all(
        (
            describe_namespace(call.lake, namespace),
            list_contents(
                call.lake, namespace, collection="namespaces", page_token=children_token, page_size=_CHILDREN_SHOWN
            ),
            list_contents(
                call.lake, namespace, collection=kind or "names", begins=begins, page_token=token, page_size=PAGE_SIZE
            ),
            load_sizes(call.lake),
        )
    )
    shown = Shown(
        kind=kind or "",
        begins=begins,
        is_later=bool(token),
        has_earlier_children=bool(children_token),
        published_ms=published.published_ms,
        sizes=published.of([one.id for one in names.entries if one.kind == "table"]),
    )
    return page(call, "namespace.html", namespace_view(namespace, described, children, names, shown))


def namespace_of(call: Call) -> Namespace:
    return Namespace(call.value("catalog"), decode_levels(call.encoded_value("namespace")))


def _token(call: Call) -> str | None:
    return call.query.get("after") or None


def _begins(call: Call) -> str:
    return call.query.get("begins", "")[:_BEGINS_CHARS_MAX]
