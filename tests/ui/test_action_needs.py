"""An action of the UI needs what the same operation of the APIs needs: no page is a way around them."""

from typing import Final

from sandur.server.control.routes import ROUTES as CONTROL
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG
from sandur.server.ui.actions.routes import ACTION_ROUTES
from sandur.server.unity_rest.routes import CLASSIC_ROUTES as UNITY

SAME: Final = {
    "restoreTable": "updateTable",
    "restoreDeltaTable": "restoreTable",
    "createReference": "updateTable",
    "removeReference": "updateTable",
    "commentTable": "updateTable",
    "commentView": "replaceView",
    "commentSchema": "updateProperties",
    "dropVolume": "deleteVolume",
    "dropFunction": "deleteFunction",
    "dropModel": "deleteRegisteredModel",
}
COMMENTS: Final = {
    "commentCatalog": "updateCatalog",
    "commentVolume": "updateVolume",
    "commentRegisteredModel": "updateRegisteredModel",
}


def test_every_action_needs_what_the_apis_need() -> None:
    needs = {route.operation: route.needs for route in (*UNITY, *CONTROL, *ICEBERG)}
    for route in ACTION_ROUTES:
        operation = route.operation.removeprefix("show") if route.method == "GET" else route.operation
        name = operation[0].lower() + operation[1:]
        if name in COMMENTS:  # The APIs rename by the same operation, which needs more.
            assert route.needs.rule == needs[COMMENTS[name]].rule
        else:
            assert route.needs == needs[SAME.get(name, name)], name


def test_a_form_needs_what_its_action_needs() -> None:
    forms = {route.path: route.needs for route in ACTION_ROUTES if route.method == "GET"}

    for route in ACTION_ROUTES:
        assert forms[route.path] == route.needs
