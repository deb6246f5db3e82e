"""The requests of the fuzz reach their operations when nothing is checked, so that a denial means something."""

import copy

import pytest

from sandur.storage.memory import MemoryStore
from tests.authorization.evaluator import Check
from tests.authorization.scene import DENIED, Scene
from tests.authorization.worlds import COMPOSITE, SINGLE
from tests.server.conftest import Catalogs

# A check of these is only a part of a request, or needs files that the tests do not have.
NO_REQUEST = {
    "move table", "overwrite table", "delete files", "create external location", "manage principals",
    "use location for a table", "use location for a volume", "use location for a namespace",
}  # fmt: skip

# Only an empty catalog can be dropped: the server answers 400.
NOT_EMPTY = {"drop catalog"}


@pytest.fixture
async def scene(catalogs: Catalogs) -> tuple[Scene, MemoryStore]:
    store = MemoryStore()
    client = await catalogs.open(store, allowed_locations=("s3://bucket/landing",))
    return await Scene.create(client), store


async def test_no_request_is_denied_when_nothing_is_checked(
    scene: tuple[Scene, MemoryStore], catalogs: Catalogs
) -> None:
    made, store = scene
    denied = {}
    for checks in (*SINGLE, *COMPOSITE):
        sent = made.request(*checks)
        if sent is not None:
            client = await catalogs.open(copy.deepcopy(store), allowed_locations=("s3://bucket/landing",))
            answer = await sent.by(client)
            is_refused = answer.status_code in {400, 500} and checks[0].operation not in NOT_EMPTY
            if answer.status_code in DENIED or is_refused:
                denied[sent.method, sent.path] = (answer.status_code, answer.text[:200])

    assert denied == {}


async def test_every_operation_has_a_request(scene: tuple[Scene, MemoryStore]) -> None:
    made, _ = scene
    asked: set[str] = set()
    for checks in SINGLE:
        check: Check = checks[0]
        if made.request(check) is not None:
            asked.add(check.operation)

    assert {checks[0].operation for checks in SINGLE} - asked == NO_REQUEST
