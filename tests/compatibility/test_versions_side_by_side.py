"""Servers of two versions on one store: nothing is lost, taken for absent or deleted, and what can be served is served.

A newer server is emulated by its records: with a field and a minor that this server does not know, or with a later
major. A server of the first release is emulated by the fields that it knows (`first_fields`).
"""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import httpx
import pytest

from sandur.catalog.record_versions import MINORS, NEWEST
from sandur.clock import SystemClock
from sandur.errors import SandurError
from sandur.operations.janitors.schedule import run_janitors
from sandur.operations.lake import Lakes
from sandur.operations.upgrade import upgrade
from sandur.server.serve import build
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from tests.compatibility.first_fields import FirstRelease
from tests.compatibility.test_first_release import I_TABLE, SETTINGS, commits, versions
from tests.compatibility.tour import KEY, KEYED_COMMIT, NAMESPACES, KeptStore, ask, fill, load, texts
from tests.server.conftest import Catalogs, with_plain_names
from tests.server.requests import create_table, set_properties
from tests.server.unity.client import CONTROL, UNITY
from tests.server.unity.delta_requests import T

YEAR_MS = 365 * 86_400_000
LATER = {"later_field": {"kept": True}}
NEEDED = f"{NEWEST.major + 1}.0"
_WHERE = "catalog_name=main&schema_name=s"

Json = dict[str, Any]


async def filled() -> KeptStore:
    """A store of this release with one object of every kind."""
    store = KeptStore()
    app, catalog = build(SETTINGS, store=store)
    await catalog.start()
    transport = httpx.ASGITransport(with_plain_names(app))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=60) as client:
        await fill(client)
    await catalog.close()  # Work behind the answers is done.
    return store


async def rewrite(store: ObjectStore, change: Callable[[str, str], str | None]) -> None:
    """Change the objects for which `change` returns another text."""
    for key, text in (await texts(store)).items():
        found = await store.get(key)
        if found and (changed := change(key, text)) is not None and changed != text:
            await store.put(key, changed.encode(), expected=found.version)


def is_record(key: str) -> bool:
    return bool(versions({key: "{}"})) or "_shared/locations/" in key


def as_of_later_major(part: str) -> Callable[[str, str], str | None]:
    def change(key: str, text: str) -> str | None:
        return json.dumps({**json.loads(text), "v": NEWEST.major + 1}) if part in key else None

    return change


def as_of_later_minor(key: str, text: str) -> str | None:
    if not is_record(key):
        return None
    record = json.loads(text)
    return json.dumps({**record, "m": MINORS[record.get("v", 1)] + 1, **LATER})


def problem(answer: httpx.Response) -> str:
    """The message of an error, which has the form of its API."""
    body = answer.json()
    if "error" in body:
        assert body["error"]["code"] == answer.status_code
        return str(body["error"]["message"])
    assert set(body) == {"error_code", "message", "details"}, body
    return str(body["message"])


IN_TABLES = f"{NAMESPACES}/s/tables"
COMMIT = set_properties(third="3")


class Refusal(NamedTuple):
    """A part of the key of some records, requests that need them (method, path, body), and paths that do not."""

    part: str
    refused: list[tuple[str, str, Json | None]]
    served: list[str]


REFUSALS = [
    Refusal(
        "/names/main/s/i.json",
        [
            ("GET", I_TABLE, None),
            ("HEAD", I_TABLE, None),
            ("POST", I_TABLE, COMMIT),
            ("DELETE", I_TABLE, None),
            ("POST", IN_TABLES, create_table("i")),
        ],
        [f"{IN_TABLES}/after", IN_TABLES, f"{UNITY}/tables?{_WHERE}", f"{UNITY}{T}"],
    ),
    Refusal(
        "/iceberg_pointers/",
        [
            ("GET", I_TABLE, None),
            ("POST", I_TABLE, COMMIT),
            ("DELETE", I_TABLE, None),
            ("GET", f"{NAMESPACES}/s/views/v", None),
            ("GET", f"{UNITY}/tables/main.s.i", None),
        ],
        [IN_TABLES, f"{NAMESPACES}/s", f"{UNITY}{T}", f"{UNITY}/volumes/main.s.vol"],
    ),
    Refusal(
        "/delta_tables/",
        [("GET", f"{UNITY}{T}", None), ("GET", f"{UNITY}/tables/main.s.t", None), ("DELETE", f"{UNITY}{T}", None)],
        [I_TABLE, IN_TABLES],
    ),
    Refusal(
        "/securables/",
        [
            ("GET", f"{UNITY}/volumes/main.s.vol", None),
            ("PATCH", f"{UNITY}/volumes/main.s.vol", {"comment": "words"}),
            ("GET", f"{UNITY}/functions/main.s.f", None),
            ("GET", f"{UNITY}/models/main.s.m", None),
            ("DELETE", f"{UNITY}/models/main.s.m", None),
        ],
        [I_TABLE, f"{UNITY}/volumes?{_WHERE}"],
    ),
    Refusal("/model_versions/", [("GET", f"{UNITY}/models/main.s.m/versions/1", None)], [f"{UNITY}/models/main.s.m"]),
    Refusal(
        "/namespaces/main/s.json",
        [
            ("GET", f"{NAMESPACES}/s", None),
            ("GET", IN_TABLES, None),
            ("DELETE", f"{NAMESPACES}/s", None),
            ("POST", IN_TABLES, create_table("new")),
            ("POST", NAMESPACES, {"namespace": ["s"]}),
            ("POST", f"{NAMESPACES}/s/properties", {"updates": {"a": "b"}, "removals": []}),
        ],
        [NAMESPACES, f"{NAMESPACES}/empty", I_TABLE],
    ),
    Refusal(
        "/catalogs/other.json",
        [
            ("GET", f"{UNITY}/catalogs/other", None),
            ("PATCH", f"{UNITY}/catalogs/other", {"comment": "x"}),
            ("DELETE", f"{UNITY}/catalogs/other", None),
            ("POST", f"{UNITY}/catalogs", {"name": "other"}),
        ],
        [f"{UNITY}/catalogs", I_TABLE],
    ),
    Refusal(
        "/security/manifest.json",
        # It has the names of catalogs and namespaces.
        [
            ("GET", f"{UNITY}/permissions/schema/main.s", None),
            ("GET", f"{CONTROL}/scim2/Users", None),
            ("GET", I_TABLE, None),
        ],
        [],
    ),
    Refusal("/unity/storage.json", [("GET", f"{UNITY}/credentials", None)], [I_TABLE]),
    Refusal("/iceberg_idempotency/", [("KEYED", I_TABLE, KEYED_COMMIT)], [I_TABLE]),
]


@pytest.mark.parametrize("case", REFUSALS, ids=[case.part for case in REFUSALS])
async def test_a_record_of_a_later_major_is_a_503_that_names_the_version(catalogs: Catalogs, case: Refusal) -> None:
    part, refused, served = case
    store = await filled()
    await rewrite(store, as_of_later_major(part))
    before = {key: text for key, text in (await texts(store)).items() if part in key}
    client = await catalogs.open_with(SETTINGS, store)

    answers = [
        await client.request(
            "POST" if method == "KEYED" else method,
            path,
            json=body,
            headers={"Idempotency-Key": KEY} if method == "KEYED" else {},
        )
        for method, path, body in refused
    ]
    others = [await client.get(path) for path in served]

    assert [answer.status_code for answer in answers] == [503] * len(refused), [answer.text for answer in answers]
    for answer in answers:
        if answer.request.method != "HEAD":
            assert f"written by a newer Sandur, in version {NEEDED}" in problem(answer)
    assert [answer.status_code for answer in others] == [200] * len(served), [answer.text for answer in others]
    assert {key: text for key, text in (await texts(store)).items() if part in key} == before
    assert before


async def test_with_authentication_the_version_is_named_and_the_key_is_not(catalogs: Catalogs) -> None:
    secret = "a secret of the tests"  # noqa: S105 - of the tests
    secured = Settings(store="memory:", authentication="on", admin_secret=secret, janitors=False)
    store = KeptStore()
    client = await catalogs.open_with(secured, store)
    form = {"grant_type": "client_credentials", "client_id": "admin", "client_secret": secret}
    token = (await client.post("/v1/oauth/tokens", data=form)).json()["access_token"]
    await rewrite(store, as_of_later_major("/security/manifest.json"))

    answer = await client.get(NAMESPACES, headers={"Authorization": f"Bearer {token}"})

    assert answer.status_code == 503
    assert problem(answer) == (
        f"A record of this request was written by a newer Sandur, in version {NEEDED}; "
        f"this server knows versions up to {NEWEST}: upgrade it"
    )


async def test_janitors_keep_every_record_of_a_later_major() -> None:
    """Also those that are old enough to be removed, such as claims, stages and dropped tables."""
    store = await filled()
    await rewrite(store, lambda key, text: as_of_later_major("")(key, text) if is_record(key) else None)
    before = {key: text for key, text in (await texts(store)).items() if is_record(key)}

    class Later(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + YEAR_MS

    lake = Lakes(SETTINGS, Later(), store).lake("default", "default")
    errors: list[tuple[str, SandurError]] = []
    run = await run_janitors(lake, {}, on_error=lambda key, error: errors.append((key, error)))

    after = await texts(store)
    assert {key: after.get(key) for key in before} == before
    derived = {"marks_removed", "segments_removed", "garbage_committed_receipts_removed"}  # They have no version.
    assert {name for name in run.counts if name.endswith("_removed")} <= derived
    assert len(errors) >= 20


async def test_a_field_of_a_later_minor_survives_every_change(catalogs: Catalogs) -> None:
    store = await filled()
    await rewrite(store, as_of_later_minor)
    before = await texts(store)
    client = await catalogs.open_with(SETTINGS, store)

    statuses = await commits(client)
    after = await texts(store)

    assert {name: status for name, status in statuses.items() if status not in {200, 204}} == {}
    changed = [key for key in before if is_record(key) and key in after and after[key] != before[key]]
    lost = [key for key in changed if "later_field" not in json.loads(after[key])]
    # A new table has taken the name of a table that was dropped: another object.
    assert [key for key in lost if not key.endswith("/names/main/s/dropped.json")] == []
    assert len(changed) >= 12
    assert {json.loads(after[key])["m"] for key in changed if key not in lost} == {MINORS[NEWEST.major] + 1}


@pytest.mark.parametrize("rounds", [1, 3])
async def test_this_release_and_the_first_change_one_store_side_by_side(catalogs: Catalogs, rounds: int) -> None:
    """Until the upgrade, the first release can decode and rewrite everything, and loses nothing that this one needs."""
    first, store = FirstRelease(), await load().restore()

    for number in range(rounds):
        client = await catalogs.open_with(SETTINGS, store)
        answer = await client.post(I_TABLE, json=set_properties(round=str(number)))
        assert answer.status_code == 200
        if number == 0:
            statuses = await commits(client)
            assert {name: status for name, status in statuses.items() if status not in {200, 204}} == {}
        await rewrite(store, first.rewritten)
    answers = await ask(await catalogs.open_with(SETTINGS, store))

    expected = {path: status for path, (status, _) in load().answers.items()}
    # What the changes above created, moved and dropped.
    expected[f"{IN_TABLES}/dropped"] = 200
    expected[f"{IN_TABLES}/after"] = 404
    expected[f"{UNITY}/functions/main.s.f"] = 404
    assert {path: status for path, (status, _) in answers.items()} == expected
    assert answers[I_TABLE][1]["metadata"]["properties"]["round"] == str(rounds - 1)


async def test_after_the_upgrade_the_first_release_can_decode_no_record(catalogs: Catalogs) -> None:
    first, store = FirstRelease(), await load().restore()
    await upgrade(Lakes(SETTINGS, SystemClock(), store), SETTINGS, is_dry=False, on_progress=lambda *_: None)
    await commits(await catalogs.open_with(SETTINGS, store))

    decoded = []
    for key, text in (await texts(store)).items():
        try:
            decoded += [key] if first.rewritten(key, text) is not None else []
        except ValueError:
            continue

    assert decoded == []


async def test_what_a_stalled_first_release_read_before_the_upgrade_it_cannot_write() -> None:
    """Its swaps expect the versions that it read, and the upgrade has replaced every record."""
    first, store = FirstRelease(), await load().restore()
    read = {key: await store.get(key) for key, text in (await texts(store)).items() if first.rewritten(key, text)}

    await upgrade(Lakes(SETTINGS, SystemClock(), store), SETTINGS, is_dry=False, on_progress=lambda *_: None)

    for key, before in read.items():
        now = await store.head(key)
        assert before
        assert now
        assert now.version != before.version, key
    assert len(read) >= 25


async def test_a_server_refuses_to_start_on_a_store_of_a_later_major(catalogs: Catalogs) -> None:
    store = await filled()
    await rewrite(
        store,
        lambda key, text: (
            json.dumps({**json.loads(text), "major": NEWEST.major + 1}) if key == "_shared/format.json" else None
        ),
    )

    with pytest.raises(SandurError, match=rf"the store has records of version {NEWEST.major + 1}\.0"):
        await catalogs.open_with(SETTINGS, store)
