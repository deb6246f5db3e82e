"""The routes of actions. Each needs what the same operation of the other APIs needs, for its form, too."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from sandur.catalog.identifiers import Kind
from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import CHANGE_GRANTS, Needs
from sandur.server import needs
from sandur.server.app import Route
from sandur.server.ui.actions.containers import CREATE_NAMESPACE, DROP_NAMESPACE, NAMESPACE_PROPERTIES
from sandur.server.ui.actions.delta_tables import RESTORE_DELTA
from sandur.server.ui.actions.maintenance import MAINTAIN
from sandur.server.ui.actions.objects import UNDROP, drop_action, rename_action, show_dropped
from sandur.server.ui.actions.securables import GRANT, OWNER, POLICY, TAGS, CommentedKind, comment_action
from sandur.server.ui.actions.steps import Action, show_form, take_form
from sandur.server.ui.actions.tables import CREATE_REF, REMOVE_REF, RESTORE, TABLE_PROPERTIES
from sandur.server.ui.actions.views import CREATE_VIEW, EDIT_VIEW

_CATALOG: Final = "/{catalog}"
_NAMESPACE: Final = _CATALOG + "/{namespace}"
_OBJECT: Final = _NAMESPACE + "/{name}"
_SECURABLE: Final = "/{securable_type}/{full_name}"
_CREATE: Final = {
    "table": privileges.CREATE_TABLE,
    "view": privileges.CREATE_VIEW,
    "volume": privileges.CREATE_VOLUME,
    "function": privileges.CREATE_FUNCTION,
    "model": privileges.CREATE_MODEL,
}
_DROPS: Final[dict[Kind, Needs]] = {
    "table": needs.DROP_TABLE,
    "view": needs.DROP_VIEW,
    "volume": Needs("volume", privileges.MANAGED),
    "function": Needs("function", privileges.MANAGED),
    "model": Needs("registered_model", privileges.MANAGED),
}
_COMMENTS: Final[dict[CommentedKind, Needs]] = {
    "catalog": needs.MANAGE_CATALOG,
    "schema": needs.CHANGE_NAMESPACE,
    "table": needs.COMMIT_TABLE,
    "view": needs.REPLACE_VIEW,
    "volume": Needs("volume", privileges.MANAGED),
    "registered_model": Needs("registered_model", privileges.MANAGED),
}


def _routes(path: str, operation: str, action: Action, needed: Needs) -> Iterator[Route]:
    name = operation[0].upper() + operation[1:]
    yield Route("GET", f"/actions{path}", f"show{name}", partial(show_form, action=action), needed)
    yield Route("POST", f"/actions{path}", operation, partial(take_form, action=action), needed)


def _all() -> Iterator[Route]:
    yield from _routes("/create-namespace" + _CATALOG, "createNamespace", CREATE_NAMESPACE, needs.CREATE_NAMESPACE)
    yield from _routes(
        "/namespace-properties" + _NAMESPACE, "updateProperties", NAMESPACE_PROPERTIES, needs.CHANGE_NAMESPACE
    )
    yield from _routes("/drop-namespace" + _NAMESPACE, "dropNamespace", DROP_NAMESPACE, needs.DROP_NAMESPACE)
    yield from _routes("/create-view" + _NAMESPACE, "createView", CREATE_VIEW, needs.CREATE_VIEW)
    yield from _routes("/edit-view" + _OBJECT, "replaceView", EDIT_VIEW, needs.REPLACE_VIEW)
    yield from _routes("/rename-table" + _OBJECT, "renameTable", rename_action("table"), needs.RENAME_TABLE)
    yield from _routes("/rename-view" + _OBJECT, "renameView", rename_action("view"), needs.RENAME_VIEW)
    for kind, needed in _DROPS.items():
        yield from _routes(f"/drop-{kind}{_OBJECT}", f"drop{kind.capitalize()}", drop_action(kind), needed)
    undrop = Needs("table", privileges.MANAGED, _CREATE)
    yield from _routes("/undrop/{kind}" + _OBJECT, "undrop", UNDROP, undrop)
    yield Route("GET", "/dropped" + _CATALOG, "listDropped", show_dropped, needs.SEE_CATALOG)
    yield from _routes("/restore" + _OBJECT, "restoreTable", RESTORE, needs.COMMIT_TABLE)
    yield from _routes("/restore-delta" + _OBJECT, "restoreDeltaTable", RESTORE_DELTA, needs.COMMIT_DELTA_TABLE)
    yield from _routes("/create-ref" + _OBJECT, "createReference", CREATE_REF, needs.COMMIT_TABLE)
    yield from _routes("/remove-ref" + _OBJECT, "removeReference", REMOVE_REF, needs.COMMIT_TABLE)
    yield from _routes("/table-properties" + _OBJECT, "updateTable", TABLE_PROPERTIES, needs.COMMIT_TABLE)
    yield from _routes("/maintain" + _OBJECT, "requestMaintenance", MAINTAIN, needs.REQUEST_MAINTENANCE)
    for kind_, needed in _COMMENTS.items():
        operation = f"comment{kind_.title().replace('_', '')}"
        yield from _routes(f"/comment/{kind_}/{{full_name}}", operation, comment_action(kind_), needed)
    yield from _routes("/grant" + _SECURABLE, "updateGrants", GRANT, CHANGE_GRANTS)
    yield from _routes("/owner" + _SECURABLE, "changeOwner", OWNER, CHANGE_GRANTS)
    yield from _routes("/tags" + _SECURABLE, "updateTags", TAGS, CHANGE_GRANTS)
    yield from _routes("/policy" + _SECURABLE, "replacePolicy", POLICY, CHANGE_GRANTS)


ACTION_ROUTES: Final = tuple(_all())
