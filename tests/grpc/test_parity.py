"""REST and gRPC answer alike: one table of cases over both ports of a real server, with and without authentication."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import grpc
import httpx
import pytest

from sandur.operations.audit.search import search_audit
from sandur.server.serve import build
from sandur.settings import Settings
from tests.grpc.case import OK, UNITY, Case, Rest, Side
from tests.grpc.cases import CASES
from tests.grpc.rest_shapes import as_rest, comparable
from tests.grpc.stubs import Client, every_method, grpc_address, problem_of
from tests.server.audited import EVER
from tests.server.process import server_process
from tests.server.secured_server import secured_server

BY_REST: Final = "main-by-rest"
BY_GRPC: Final = "main-by-grpc"
EVERYTHING: Final = ["SELECT", "MODIFY", "EXECUTE", "READ FILES", "CREATE EXTERNAL TABLE"]
NO_CASE: Final = {"Catalogs.Create", "Directory.Resolve", "Directory.Lookup", "Events.Subscribe", "Events.Query"}
"""Methods with tests of their own."""

_PAGES_MAX: Final = 100
AUDITED: Final = (
    "kind",
    "operation",
    "decision",
    "status",
    "outcome",
    "principal",
    "securable_type",
    "securable_name",
    "privilege",
    "reason",
)


class Both:
    """A client of both ports, with the same token."""

    def __init__(self, url: str, address: str, token: str = "") -> None:
        headers = {"authorization": f"Bearer {token}"} if token else {}
        self.http = httpx.Client(base_url=url, headers=headers, timeout=60)
        self.grpc = Client(address, token)
        self.sides = {name: Side(name, {}) for name in (BY_REST, BY_GRPC)}

    def close(self) -> None:
        self.http.close()
        self.grpc.close()

    def send(self, case: Case) -> tuple[Any, Any]:
        """The answers of both, comparable; those of an error are its texts."""
        request = case.rest(self.sides[BY_REST])
        by_rest, expected = self.send_rest(request, f"rest {case.name}"), case.status
        assert by_rest.status_code == expected if expected else by_rest.is_success, (case.name, by_rest.text)
        said = by_rest.json() if by_rest.content else None
        if expected:
            return _texts(said, self.grpc_problem(case))
        by_grpc = as_rest(self.call(case))
        self.sides[BY_REST].answers[case.name] = said
        self.sides[BY_GRPC].answers[case.name] = by_grpc
        return comparable(_core(said)), comparable(_core(by_grpc))

    def send_rest(self, request: Rest, request_id: str) -> httpx.Response:
        is_raw = isinstance(request.body, bytes)
        content = request.body if is_raw else b"" if request.body is None else json.dumps(request.body).encode()
        headers = {"content-type": "application/json", "x-request-id": request_id.replace(" ", "-")}
        return self.http.request(request.method, request.path, content=content, params=request.query, headers=headers)

    def call(self, case: Case) -> Any:
        request_id = ("x-request-id", f"grpc {case.name}".replace(" ", "-"))
        return self.grpc.call(case.method, case.message(self.sides[BY_GRPC]), request_id)

    def grpc_problem(self, case: Case) -> str:
        with pytest.raises(grpc.RpcError) as raised:
            self.call(case)
        found = problem_of(raised.value)
        assert found.code == case.code, (case.name, found)
        assert found.details["RequestInfo"].request_id == f"grpc-{case.name}".replace(" ", "-")
        return found.text


def _texts(said: Any, by_grpc: str) -> tuple[Any, Any]:
    text = said["error"]["message"] if "error" in said else said["message"]
    return comparable(text), comparable(by_grpc)


def _core(said: Any) -> Any:
    """An answer without what only REST has: where a client goes next, and what it may ignore."""
    if not isinstance(said, dict):
        return None
    left_out = {"config", "storage_location", "stage-id", "requirements", "next_page_token"}
    found = {key: value for key, value in said.items() if key not in left_out}
    if "catalogs" in found:
        found["catalogs"] = [_core(one) for one in found["catalogs"] if one["name"] in {BY_REST, BY_GRPC}]
        found["catalogs"] = sorted(json.dumps(comparable(one), sort_keys=True) for one in found["catalogs"])
    return found or None


@pytest.fixture(scope="module")
def open_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    with server_process(
        tmp_path_factory.mktemp("open"), "--grpc-port", "0", "--workers", "2", fsync="never"
    ) as process:
        both = Both(process.url, grpc_address(process.printed))
        yield both
        both.close()


def _compare(both: Both) -> None:
    for name in (BY_REST, BY_GRPC):
        made = both.http.post(f"{UNITY}/catalogs", json={"name": name, "comment": "c"})
        assert made.is_success, made.text
    for case in CASES:
        by_rest, by_grpc = both.send(case)
        assert by_grpc == by_rest, case.name


def test_every_method_has_a_case() -> None:
    assert set(every_method()) == {case.method for case in CASES} | (NO_CASE & set(every_method()))
    assert {case.method for case in CASES if case.code == OK} >= set(every_method()) - NO_CASE


def test_all_cases_are_answered_alike_without_authentication(open_server: Both) -> None:
    _compare(open_server)


def test_all_cases_are_answered_and_audited_alike_with_authentication(tmp_path: Path) -> None:
    with secured_server(tmp_path, "--grpc-port", "0") as server:
        server.grant("admin", EVERYTHING, "metastore", "metastore")
        both = Both(server.url, grpc_address(server.process.printed), server.admin_token)
        _compare(both)
        both.close()

    audited = asyncio.run(_audited(tmp_path))

    for case, by_rest, by_grpc in zip(CASES, audited["rest"], audited["grpc"], strict=True):
        assert by_grpc == by_rest, case.name


async def _audited(folder: Path) -> dict[str, list[Any]]:
    """What the trail of a server that has ended says about the requests of the cases, by protocol, in their order."""
    _, catalog = build(Settings(store=str(folder / "data")))
    found: dict[str, Any] = {}
    token: str | None = None
    for _ in range(_PAGES_MAX):
        page = await search_audit(catalog.lakes.lake("default", "default"), EVER, page_size=1_000, page_token=token)
        for record in page.records:
            # REST has several statuses for what is done, and the APIs have different ones for the same refusal.
            status = record.status // 100
            found[record.request_id] = {**{name: getattr(record, name) for name in AUDITED}, "status": status}
        token = page.next_token
        if token is None:
            break
    await catalog.close()
    names = [case.name.replace(" ", "-") for case in CASES]
    return {by: [comparable(found[f"{by}-{name}"]) for name in names] for by in ("rest", "grpc")}
