"""The requests of the fuzz reach their operations when nothing is checked, so that a denial means something."""

import pytest

from tests.authorization.evaluator import Check
from tests.authorization.names import DENIED
from tests.authorization.scene import Scene
from tests.authorization.secured import KeptStore
from tests.authorization.worlds import COMPOSITE, SINGLE
from tests.server.conftest import Catalogs

# A check of these is only a part of a request, or needs files that the tests do not have.
NO_REQUEST = {
    "move table", "overwrite table", "delete files", "create external location", "use credential",
    "use location for a volume", "use location for a namespace",
}  # fmt: skip

REFUSED = {
    # What is in use cannot be dropped. A server without authentication makes no API keys. Its settings give no
    # credentials for the bucket of the external location.
    400: {
        *("drop catalog", "drop namespace", "drop credential", "manage principals"),
        *("read files", "write files", "use location for a table"),
    },
    # The tests cannot reach the bucket of the external location.
    500: {"use location for a table"},
    # Only a store with grants has the principal. Iceberg's API has no functions.
    404: {"manage principals", "load function"},
}


@pytest.fixture
async def scene(catalogs: Catalogs) -> tuple[Scene, KeptStore]:
    store = KeptStore()
    client = await catalogs.open(store, allowed_locations=("s3://bucket/landing",))
    return await Scene.create(client), store


async def test_no_request_is_denied_when_nothing_is_checked(scene: tuple[Scene, KeptStore], catalogs: Catalogs) -> None:
    made, store = scene
    denied = []
    for checks in (*SINGLE, *COMPOSITE):
        for sent in made.requests(*checks):
            client = await catalogs.open(store.copy(), allowed_locations=("s3://bucket/landing",))
            answer = await sent.by(client)
            is_known = {check.operation for check in checks} & REFUSED.get(answer.status_code, set())
            if answer.status_code in {*DENIED, 400, 500} and not is_known:
                denied.append(f"{sent.method} {sent.path} {sent.body}: {answer.status_code} {answer.text[:200]}")

    assert "\n".join(denied) == ""


async def test_every_operation_has_a_request(scene: tuple[Scene, KeptStore]) -> None:
    made, _ = scene
    asked: set[str] = set()
    for checks in SINGLE:
        check: Check = checks[0]
        if any(made.requests(check)):
            asked.add(check.operation)

    assert {checks[0].operation for checks in SINGLE} - asked == NO_REQUEST
