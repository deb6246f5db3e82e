"""The specification of the Delta API against the server: no request that is valid, or nearly valid, breaks it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.server.process import ServerProcess, server_process
from tests.server.unity.client import UNITY, Json
from tests.server.unity.delta_requests import SCHEMA, creation

SPECIFICATION: Final = Path(__file__).parents[2].parent / "shared" / "spec" / "unity-catalog" / "delta.yaml"
EXAMPLES_MAX: Final = 4
# The text of the specification says that simple types are strings; its schema says that all types are objects.
WITH_COLUMNS: Final = ("/tables", "/tables/{table}")
EXISTING: Final[Json] = {"catalog": "main", "schema": "s", "table": "t"}


def operations() -> list[Any]:
    if not SPECIFICATION.exists():
        return []
    loaded: list[Any] = list(schemathesis.openapi.from_path(SPECIFICATION).get_all_operations())
    return [result.ok() for result in loaded]


OPERATIONS = operations()

pytestmark = pytest.mark.skipif(not OPERATIONS, reason=f"the specification is not at {SPECIFICATION}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("delta"), fsync="never", log_level="warning") as running:
        yield running


def made_table(server: ServerProcess) -> str:
    """The id of an existing table, created again if the last operation dropped it."""
    with httpx.Client(base_url=server.url + UNITY, timeout=60) as client:
        client.post("/schemas", json={"catalog_name": "main", "name": "s"})
        found = client.get(f"{SCHEMA}/tables/t")
        if found.status_code == httpx.codes.NOT_FOUND:
            stage = client.post(f"{SCHEMA}/staging-tables", json={"name": "t"}).raise_for_status().json()
            found = client.post(f"{SCHEMA}/tables", json=creation(stage)).raise_for_status()
        uuid: str = found.json()["metadata"]["table-uuid"]
        return uuid


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=[f"{one.method} {one.path}" for one in OPERATIONS])
def test_no_request_breaks_the_server_and_answers_match_the_specification(
    server: ServerProcess, operation: Any, mode: GenerationMode
) -> None:
    uuid = made_table(server)
    with requests.Session() as session:

        @seed(20_261_116)
        @settings(max_examples=EXAMPLES_MAX, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode), is_aimed=st.booleans())
        def explore(case: Any, is_aimed: bool) -> None:  # noqa: FBT001 - given by Hypothesis
            if is_aimed:
                aim(case, operation.path, uuid)
            answer = case.call(base_url=server.url + UNITY, session=session, timeout=60)
            assert answer.status_code < 500 or answer.status_code == 501, (case.as_curl_command(), answer.text)
            if answer.status_code == 200 and not operation.path.endswith(WITH_COLUMNS):
                case.validate_response(answer, checks=[response_schema_conformance])
            elif answer.status_code >= 400 and answer.text:
                assert {"message", "type", "code"} == set(answer.json()["error"]), answer.text

        try:
            explore()
        except Exception as error:
            if "Unsatisfiable" in type(error).__name__ or "cannot be negated" in str(error):
                pytest.skip(f"nothing of this kind can be generated: {error}")
            raise


def aim(case: Any, path: str, uuid: str) -> None:
    """Make the request refer to existing objects."""
    named = {name: value for name, value in EXISTING.items() if f"{{{name}}}" in path}
    case.path_parameters = {**(case.path_parameters or {}), **named}
    if isinstance(case.query, dict) and "catalog" in case.query:
        case.query = {**case.query, "catalog": "main"}
    if isinstance(case.body, dict) and "requirements" in case.body:
        case.body["requirements"] = [{"type": "assert-table-uuid", "uuid": uuid}]
    if isinstance(case.body, dict) and "table-id" in case.body:
        case.body["table-id"] = uuid
