"""The Iceberg REST specification against the server: no request that is valid, or nearly valid, breaks it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, create_view

SPECIFICATION = Path(__file__).parents[2].parent / "shared" / "spec" / "rest-catalog-open-api.yaml"
EXAMPLES_MAX = 20
EXISTING = {"prefix": "main", "namespace": "ns", "table": "t", "view": "v"}


def operations() -> list[Any]:
    if not SPECIFICATION.exists():
        return []
    found: list[Any] = list(schemathesis.openapi.from_path(SPECIFICATION).get_all_operations())
    return [result.ok() for result in found]


OPERATIONS = operations()

pytestmark = pytest.mark.skipif(not OPERATIONS, reason=f"the specification is not at {SPECIFICATION}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with server_process(tmp_path_factory.mktemp("openapi"), fsync="never", log_level="warning") as running:
        yield running


def restore_objects(server: ServerProcess) -> None:
    """Restore the objects that the last operation may have dropped."""
    with httpx.Client(base_url=server.url, timeout=60) as client:
        for path, body in (
            ("/v1/namespaces", {"namespace": ["ns"]}),
            ("/v1/namespaces/ns/tables", create_table("t")),
            ("/v1/namespaces/ns/views", create_view("v")),
        ):
            assert client.post(path, json=body).status_code in {200, 409}


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["good", "bad"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}")
def test_no_request_breaks_the_server_and_answers_match_the_specification(
    server: ServerProcess, operation: Any, mode: GenerationMode
) -> None:
    restore_objects(server)
    with requests.Session() as session:

        @seed(20_260_822)
        @settings(max_examples=EXAMPLES_MAX, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(generation_mode=mode), is_aimed=st.booleans())
        def explore(case: Any, is_aimed: bool) -> None:  # noqa: FBT001 - given by Hypothesis
            if is_aimed:
                case.path_parameters = {**(case.path_parameters or {}), **aimed(operation.path)}
            answer = case.call(base_url=server.url, session=session, timeout=60)
            # A folder has nothing to sign: that is not supported, and says so.
            is_unsupported = operation.path.endswith("/sign") and answer.status_code == 501
            assert answer.status_code < 500 or is_unsupported, (case.as_curl_command(), answer.text)
            if answer.status_code == 200:
                case.validate_response(answer, checks=[response_schema_conformance])
            elif answer.status_code >= 400 and answer.text and "oauth" not in operation.path:
                assert answer.json()["error"]["code"] == answer.status_code

        try:
            explore()
        except Exception as error:
            if "Unsatisfiable" in type(error).__name__ or "cannot be negated" in str(error):
                pytest.skip(f"nothing of this kind can be generated: {error}")
            raise


def aimed(path: str) -> dict[str, str]:
    return {name: value for name, value in EXISTING.items() if f"{{{name}}}" in path}
