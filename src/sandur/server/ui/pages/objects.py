"""The pages of one object."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from sandur.catalog.identifiers import Identifier, Kind, full_name_of
from sandur.catalog.records import ModelVersion
from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import Needs, SecurableType
from sandur.errors import Forbidden, NotFound
from sandur.operations.browse import describe_object
from sandur.operations.directory import DirectoryEntry, find_id
from sandur.operations.securable_chains import TYPES
from sandur.operations.unity.grants import load_effective_privileges, load_grant_chain
from sandur.operations.unity.lists import ListRequest
from sandur.operations.unity.model_versions import list_versions
from sandur.server.context import Call
from sandur.server.http import Answer
from sandur.server.ui.links import object_link
from sandur.server.ui.pages.data import namespace_of
from sandur.server.ui.renderer import lake_for, page, redirect
from sandur.server.ui.views.objects import Effective, described_view, dropped_view, grants_view, table_view
from sandur.storage.cell import gather_all

_VERSIONS_SHOWN: Final = 200
_READ_MODEL: Final = Needs("registered_model", privileges.EXECUTE)


async def show_object(call: Call, kind: Kind) -> Answer:
    """The overview of an object; an object of another kind has its own page."""
    identifier = identifier_of(call)
    described, versions = await gather_all(
        (describe_object(call.lake, identifier, expected=kind), _versions(call, kind))
    )
    if described.kind != kind:
        return redirect(object_link(identifier, described.kind))
    if kind == "table":
        shown = table_view(identifier, described, origin=origin_of(call), needs_login=call.access is not None)
        return page(call, "table.html", shown)
    return page(call, f"{kind}.html", described_view(identifier, described, versions))


async def _versions(call: Call, kind: Kind) -> Sequence[ModelVersion]:
    """The versions of a model; none of anything else."""
    if kind != "model":
        return ()
    with suppress(NotFound):  # The description says which kind it is, or that it does not exist.
        listed = ListRequest(None, _VERSIONS_SHOWN)
        return (await list_versions(lake_for(call, _READ_MODEL), identifier_of(call), listed)).versions
    return ()


async def show_grants(call: Call, kind: Kind) -> Answer:
    """Direct and inherited grants; with `principal`, what it may do and why."""
    identifier, principal = identifier_of(call), call.query.get("principal", "").strip()
    type_, name = TYPES[kind], full_name_of(identifier)
    chain, shown = await gather_all(
        (load_grant_chain(call.lake, type_, name), _effective(call, type_, name, principal))
    )
    return page(call, "grants.html", grants_view(identifier, kind, chain, shown, is_on=call.access is not None))


async def _effective(call: Call, type_: SecurableType, name: str, principal: str) -> Effective:
    """What the principal may do, or the caller if none is named; and nothing if there is no caller either."""
    who = principal or call.identity.principal
    if not principal and call.access is None:
        return Effective(who, None)
    try:
        return Effective(who, await load_effective_privileges(call.lake, type_, name, principal or None))
    except (NotFound, Forbidden) as error:
        return Effective(who, None, str(error))


async def show_id(call: Call) -> Answer:
    """Goes to the page of the object with an id, under the name that it has today."""
    uuid = call.value("uuid")
    found = await find_id(call.lake, uuid)
    if found is None:
        raise NotFound(f"there is no object with the id {uuid[:40]} that you may see", subject="object")
    if isinstance(found, DirectoryEntry):
        return redirect(object_link(found.identifier, found.kind))
    return page(call, "dropped.html", dropped_view(found), status=410)


def identifier_of(call: Call) -> Identifier:
    return Identifier(*namespace_of(call), call.value("name"))


def origin_of(call: Call) -> str:
    """The address of this server as the browser knows it."""
    host = call.http.header(b"host") or f"{call.settings.host}:{call.settings.port}"
    return f"{'https' if call.http.header(b'x-forwarded-proto') == 'https' else 'http'}://{host}"
