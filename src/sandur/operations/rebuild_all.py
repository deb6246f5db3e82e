"""Making the list indexes of a whole workspace anew: an explicit repair, beside what servers do by themselves."""

from collections.abc import AsyncIterator

from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.errors import SandurError
from sandur.operations.index_rebuild import rebuild
from sandur.operations.index_truth import keys_below, written_names
from sandur.operations.lake import Lake


async def rebuild_all(lake: Lake, catalog: str | None = None) -> AsyncIterator[tuple[Scope, SandurError | None]]:
    """Every index of a catalog, or of all catalogs, one by one: its scope, and why it could not be made anew, if so."""
    catalogs = [catalog] if catalog else list(await written_names(lake, CATALOGS))
    scopes = [] if catalog else [CATALOGS]
    for name in catalogs:
        scopes.append(namespaces_scope(name, None))
        folder = lake.layout.namespaces_folder(name)
        namespaces = [lake.layout.parse_namespace(key) async for key in keys_below(lake, folder)]
        scopes += [
            scope for namespace in namespaces for scope in (namespaces_scope(name, namespace), names_scope(namespace))
        ]
    for scope in scopes:
        try:
            await rebuild(lake, scope)
        except SandurError as error:
            yield scope, error
        else:
            yield scope, None
