"""The server answers random requests as the evaluator decides: what is denied changes nothing and reveals nothing.

The requests are those of the Iceberg API and of Unity Catalog's. Hypothesis prints how to repeat a failure.
"""

import asyncio
import json
import re
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import httpx
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sandur.server.serve import build
from tests.authorization.evaluator import Check, Decision, Kind, World, decide, is_visible, visible_children
from tests.authorization.scene import DENIED, KINDS, Scene, Sent
from tests.authorization.secured import OPEN_SETTINGS, KeptStore, Received, install, send
from tests.authorization.worlds import COMPOSITE, GRANTABLE, PRINCIPALS, SINGLE, world_owned_by, worlds
from tests.server.conftest import with_plain_names
from tests.server.unity.client import UNITY

STATUS: Final = {Decision.FORBIDDEN: HTTPStatus.FORBIDDEN, Decision.HIDDEN: HTTPStatus.NOT_FOUND}
SENT_TO: Final = ("/v1/", f"{UNITY}/")
# A path that no external location covers is refused with 403, so one below a hidden location is, too.
BY_PATH: Final = {"read files", "write files"}
MISSING: Final = "zzzz"
PRIVILEGES: Final = {privilege for privileges in GRANTABLE.values() for privilege in privileges}
LISTED: Final = {Kind.METASTORE: Kind.CATALOG, Kind.CATALOG: Kind.NAMESPACE, Kind.NAMESPACE: Kind.TABLE}


@cache
def scene() -> tuple[Scene, KeptStore]:
    """The tree, created once by a server that checks nothing."""
    return asyncio.run(create_scene())


async def create_scene() -> tuple[Scene, KeptStore]:
    store = KeptStore()
    app, catalog = build(OPEN_SETTINGS, store=store)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        made = await Scene.create(client)
    await catalog.close()
    return made, store


def content(store: KeptStore) -> dict[str, Any]:
    """The objects that matter.

    The audit trail records denials. An index is written again without a change (I3). The record of a transaction that
    was refused is aborted.
    """
    found = {}
    for key, (stored, _) in store._objects.items():
        value = stored.data
        if "/index/" in key:
            value = re.sub(rb'"event_id":"[^"]*"|"updated_at_epoch_ms":\d+', b"", value)
        is_aborted = "/iceberg_transactions/" in key and b'"state":"aborted"' in value
        if "/audit/" not in key and not is_aborted:
            found[key] = value
    return found


class Comparison:
    """Requests of one principal in one world, and how their answers differ from the evaluator's decisions."""

    def __init__(self, made: Scene, secured: KeptStore, world: World, principal: str) -> None:
        self._made = made
        self._secured = secured
        self._world = world
        self._principal = principal
        self.differences: list[str] = []

    async def ask(self, checks: tuple[Check, ...]) -> None:
        """Send the request of these checks, and compare."""
        sent = self._made.request(*checks)
        if sent is None or not sent.path.startswith(SENT_TO):
            return
        expected = decide(self._world, self._principal, *checks)
        received, after = await send(self._secured, sent, self._principal)
        what = f"{sent.method} {sent.path} by {self._principal}: {received.status}, expected {expected}"
        if expected is Decision.ALLOWED:
            if received.status in DENIED and all(map(self._sees_containers, checks)):
                self.differences.append(f"{what}: {received.body!r}")
            elif checks[0].operation == "list" and received.status == HTTPStatus.OK:
                self._compare_list(checks[0].object_id, received.body)
        elif checks[0].operation == "read grants" and expected is Decision.FORBIDDEN:
            self._compare_own_grants(what, received)
        else:
            self._compare_denial(what, checks, expected, received)
            if changed := content(after).items() ^ content(self._secured).items():
                self.differences.append(f"{what}: changed {sorted({key for key, _ in changed})}")
            if len(checks) == 1 and expected is Decision.HIDDEN:
                await self._compare_with_missing(what, sent, checks[0], received)

    def _compare_denial(self, what: str, checks: tuple[Check, ...], expected: Decision, received: Received) -> None:
        """The parts of a request are checked in any order: if there are two, it is refused with 403 or with 404."""
        is_exact = len(checks) == 1 and self._sees_containers(checks[0]) and checks[0].operation not in BY_PATH
        if received.status not in ({STATUS[expected]} if is_exact else DENIED):
            self.differences.append(f"{what}: {received.body!r}")
        text = received.body.decode()
        names_privilege = "ownership" in text or any(privilege in text for privilege in PRIVILEGES)
        if received.status == HTTPStatus.FORBIDDEN and received.body and not names_privilege:
            self.differences.append(f"{what}: names no privilege: {text}")

    def _sees_containers(self, check: Check) -> bool:
        """An owner may not see the containers of what it owns. Then it is refused with 403 or with 404."""
        containers = self._world.chain(check.object_id)[1:]
        is_owned = not is_visible(self._world, self._principal, check.object_id)
        return is_owned or all(is_visible(self._world, self._principal, one.id) for one in containers)

    async def _compare_with_missing(self, what: str, sent: Sent, check: Check, received: Received) -> None:
        """The answer about a hidden object is that about an object that does not exist."""
        leaf = check.object_id.rpartition(".")[2]
        pattern = re.compile(rf"(?<![A-Za-z]){leaf}(?![A-Za-z])")
        if not pattern.search(sent.path):
            return  # A level of a nested namespace is encoded.
        twin = Sent(sent.method, pattern.sub(MISSING, sent.path), sent.body)
        missing, _ = await send(self._secured, twin, self._principal)
        if (missing.status, missing.body.replace(MISSING.encode(), leaf.encode())) != (received.status, received.body):
            self.differences.append(f"{what}: {received.body!r}, but for a missing one {missing}")

    def _compare_own_grants(self, what: str, received: Received) -> None:
        """Who does not manage an object sees the grants of its own subjects only."""
        if received.status != HTTPStatus.OK:
            if received.status not in DENIED:
                self.differences.append(f"{what}: {received.body!r}")
            return
        shown = {one["principal"] for one in json.loads(received.body)["privilege_assignments"]}
        if foreign := shown - self._world.subjects(self._principal):
            self.differences.append(f"{what}: shows grants of {sorted(foreign)}")

    def _compare_list(self, container: str, body: bytes) -> None:
        kind, answer = KINDS[container], json.loads(body)
        if kind is Kind.METASTORE:
            listed = {one["name"] for one in answer["catalogs"]}
        elif kind is Kind.CATALOG:
            listed = {".".join((container, *levels)) for levels in answer["namespaces"]}
        else:
            listed = {f"{container}.{one['name']}" for one in answer["identifiers"]}
        children = visible_children(self._world, self._principal, container)
        visible = {one for one in children if KINDS[one] is LISTED[kind]}
        if listed != visible:
            self.differences.append(f"list of {container}: {sorted(listed)}, expected {sorted(visible)}")


async def compare(
    made: Scene, store: KeptStore, world: World, principal: str, questions: list[tuple[Check, ...]]
) -> list[str]:
    comparison = Comparison(made, await install(store, world), world, principal)
    for checks in questions:
        await comparison.ask(checks)
    return comparison.differences


# An example sends many requests. To shrink one would take minutes.
@settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck), phases=(Phase.generate,))
@given(
    worlds(),
    st.sampled_from(PRINCIPALS),
    st.lists(st.one_of(st.sampled_from(SINGLE), st.sampled_from(COMPOSITE)), min_size=15, max_size=30),
)
def test_the_server_answers_as_the_evaluator_decides(
    world: World, principal: str, questions: list[tuple[Check, ...]]
) -> None:
    made, store = scene()

    assert asyncio.run(compare(made, store, world, principal, questions)) == []


def test_a_principal_without_rights_learns_nothing_and_changes_nothing() -> None:
    made, store = scene()
    world = world_owned_by("root")

    assert asyncio.run(compare(made, store, world, "ann", [*SINGLE, *COMPOSITE])) == []
