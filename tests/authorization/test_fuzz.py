"""The server answers random requests as the evaluator decides: what is denied changes nothing and reveals nothing.

The requests are those of the Iceberg API and of the grants. Hypothesis prints how to repeat a failure.
"""

import asyncio
import json
import re
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from sandur.server.serve import build
from tests.authorization.evaluator import METASTORE, Check, Decision, Kind, World, decide, is_visible, visible_children
from tests.authorization.names import DELTA_TABLES, DENIED, KINDS, Sent, renamed
from tests.authorization.scene import Scene
from tests.authorization.secured import OPEN_SETTINGS, KeptStore, Received, Secured, install, send
from tests.authorization.worlds import COMPOSITE, GRANTABLE, PRINCIPALS, SINGLE, world_owned_by, worlds
from tests.server.conftest import with_plain_names
from tests.server.unity.client import UNITY

STATUS: Final = {Decision.FORBIDDEN: HTTPStatus.FORBIDDEN, Decision.HIDDEN: HTTPStatus.NOT_FOUND}
INEXACT: Final = ("read files", "write files", "use location for a table", "create namespace")
MISSING: Final = "zzzz"
MISSING_ID: Final = "0190b6a0-0000-7000-8000-00000000ffff"
PRIVILEGES: Final = {privilege for privileges in GRANTABLE.values() for privilege in privileges}
# What a list contains, by its path. Unity Catalog lists views among the tables.
LISTED: Final[tuple[tuple[str, frozenset[Kind]], ...]] = (
    (f"^{UNITY}/tables", frozenset((Kind.TABLE, Kind.VIEW))),
    ("/tables", frozenset((Kind.TABLE,))),
    ("/views", frozenset((Kind.VIEW,))),
    ("/functions", frozenset((Kind.FUNCTION,))),
    ("/volumes", frozenset((Kind.VOLUME,))),
    ("/models", frozenset((Kind.MODEL,))),
    ("/catalogs", frozenset((Kind.CATALOG,))),
    ("/external-locations", frozenset((Kind.EXTERNAL_LOCATION,))),
    ("/credentials", frozenset((Kind.CREDENTIAL,))),
    ("/namespaces|/schemas", frozenset((Kind.NAMESPACE,))),
)


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
            value = re.sub(rb'"event_id":\[?"[^"]*"\]?|"updated_at_epoch_ms":\d+', b"", value)
        is_aborted = "/iceberg_transactions/" in key and b'"state":"aborted"' in value
        if "/audit/" not in key and not is_aborted:
            found[key] = value
    return found


def is_named_in(object_id: str, other_id: str) -> bool:
    """Whether the last part of a name occurs in another name."""
    return object_id.rpartition(".")[2] in other_id.split(".")


class Comparison:
    """Requests of one principal in one world, and how their answers differ from the evaluator's decisions."""

    def __init__(self, made: Scene, secured: Secured, world: World, principal: str) -> None:
        self._made = made
        self._secured = secured
        self._world = world
        self._principal = principal
        self.differences: list[str] = []

    async def ask(self, checks: tuple[Check, ...]) -> None:
        """Send the request of these checks, and compare."""
        for sent in self._made.requests(*checks):
            await self._compare(sent, checks)

    async def _compare(self, sent: Sent, checks: tuple[Check, ...]) -> None:
        expected = decide(self._world, self._principal, *checks)
        is_registration = checks[-1].operation == "read files" and len(checks) > 1
        if is_registration and decide(self._world, self._principal, checks[0], checks[-1]) is Decision.ALLOWED:
            return  # The file says where the table is, and the tests cannot reach it.
        received, after = await send(self._secured, sent, self._principal)
        what = f"{sent.method} {sent.path} by {self._principal}: {received.status}, expected {expected}"
        if expected is Decision.ALLOWED:
            # No function has the form of Iceberg, so that its API finds none.
            is_absent = checks[0].operation == "load function" and UNITY not in sent.path
            if received.status in DENIED and all(map(self._sees_containers, checks)) and not is_absent:
                self.differences.append(f"{what}: {received.body!r}")
            elif checks[0].operation == "list" and received.status == HTTPStatus.OK:
                self._compare_list(checks[0].object_id, sent, received.body)
        elif checks[0].operation == "read grants" and expected is Decision.FORBIDDEN:
            self._compare_own_grants(what, received)
        else:
            self._compare_denial(what, checks, expected, received)
            if changed := content(after).items() ^ content(self._secured.store).items():
                self.differences.append(f"{what}: changed {sorted({key for key, _ in changed})}")
            for check in checks:
                is_apart = all(one is check or not is_named_in(check.object_id, one.object_id) for one in checks)
                if is_apart and decide(self._world, self._principal, check) is Decision.HIDDEN:
                    await self._compare_with_missing(what, sent, check, received)

    def _compare_denial(self, what: str, checks: tuple[Check, ...], expected: Decision, received: Received) -> None:
        """The parts of a request are checked in any order: if there are two, it is refused with 403 or with 404.

        A client names a path, not an external location. So a path in a hidden location, as one in no location at all,
        is refused with 403: it needs a right on the metastore. In the same way, a namespace in a hidden one is refused
        as one in a missing one, which Iceberg's API would create: it needs a right on the catalog.
        """
        is_exact = len(checks) == 1 and self._sees_containers(checks[0]) and checks[0].operation not in INEXACT
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
        missing = {check.object_id.rpartition(".")[2]: MISSING, self._made.ids.get(check.object_id, ""): MISSING_ID}
        twin = sent.with_names(missing)
        if twin == sent:
            return  # A level of a nested namespace is encoded.
        found, _ = await send(self._secured, twin, self._principal)
        back = renamed(found.body.decode(), {new: old for old, new in missing.items() if old})
        if (found.status, back) != (received.status, received.body.decode()):
            self.differences.append(f"{what}: {received.body!r}, but for a missing one {found}")

    def _compare_own_grants(self, what: str, received: Received) -> None:
        """Who does not manage an object sees the grants of its own subjects only."""
        if received.status != HTTPStatus.OK:
            if received.status not in DENIED:
                self.differences.append(f"{what}: {received.body!r}")
            return
        shown = {one["principal"] for one in json.loads(received.body)["privilege_assignments"]}
        if foreign := shown - self._world.subjects(self._principal):
            self.differences.append(f"{what}: shows grants of {sorted(foreign)}")

    def _compare_list(self, container: str, sent: Sent, body: bytes) -> None:
        kinds = next(kinds for pattern, kinds in LISTED if re.search(pattern, sent.path))
        answer = json.loads(body)
        (entries,) = [value for value in answer.values() if isinstance(value, list)]
        prefix = "" if container == METASTORE else f"{container}."
        catalog = container.partition(".")[0]
        listed = {f"{catalog}.{'.'.join(one)}" if isinstance(one, list) else prefix + one["name"] for one in entries}
        children = visible_children(self._world, self._principal, container)
        visible = {one for one in children if KINDS[one] in kinds and (UNITY in sent.path or one not in DELTA_TABLES)}
        if listed != visible:
            self.differences.append(f"{sent.path}: {sorted(listed)}, expected {sorted(visible)}")


async def compare(
    made: Scene, store: KeptStore, world: World, principal: str, questions: list[tuple[Check, ...]]
) -> str:
    """The differences, one in each line."""
    comparison = Comparison(made, await install(store, world), world, principal)
    for checks in questions:
        await comparison.ask(checks)
    return "\n".join(comparison.differences)


# An example sends many requests. To shrink one would take minutes.
BRIEF: Final = settings(
    deadline=None, max_examples=20, suppress_health_check=list(HealthCheck), phases=(Phase.generate,)
)
LONG: Final = settings(BRIEF, max_examples=400)
questions: Final = st.lists(st.one_of(st.sampled_from(SINGLE), st.sampled_from(COMPOSITE)), min_size=15, max_size=30)


@BRIEF
@given(worlds(), st.sampled_from(PRINCIPALS), questions)
def test_the_server_answers_as_the_evaluator_decides(
    world: World, principal: str, asked: list[tuple[Check, ...]]
) -> None:
    made, store = scene()

    assert asyncio.run(compare(made, store, world, principal, asked)) == ""


@pytest.mark.slow
@LONG
@given(worlds(), st.sampled_from(PRINCIPALS), questions)
def test_the_server_answers_as_the_evaluator_decides_in_many_worlds(
    world: World, principal: str, asked: list[tuple[Check, ...]]
) -> None:
    made, store = scene()

    assert asyncio.run(compare(made, store, world, principal, asked)) == ""


def test_a_principal_without_rights_learns_nothing_and_changes_nothing() -> None:
    made, store = scene()
    world = world_owned_by("root")

    assert asyncio.run(compare(made, store, world, "ann", [*SINGLE, *COMPOSITE])) == ""
