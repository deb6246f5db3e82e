"""Lists of objects to delete are signed only for a service that compares them with their signed hash."""

import httpx
import pytest
from msgspec.structs import replace

from sandur.storage.memory import MemoryStore
from tests.fakes.comparing_s3 import ComparingS3, comparing_s3
from tests.server.conftest import Catalogs
from tests.signatures.generated import delete_body
from tests.signatures.signing_server import NS, S3, SIGNING, SigningServer, set_up


async def signing_for(service: ComparingS3, catalogs: Catalogs) -> SigningServer:
    settings = replace(SIGNING, s3=replace(S3, endpoint=service.url))
    return await set_up(await catalogs.open_with(settings, MemoryStore()), service.url)


async def sign_list(server: SigningServer, *keys: str) -> httpx.Response:
    folder = server.table.removeprefix("s3://bucket/")
    body = delete_body(*(f"{folder}/{key}" for key in keys))
    return await server.sign("admin", "POST", f"{server.endpoint}/bucket?delete", body=body)


async def test_a_service_that_compares_is_tried_once_and_gets_its_lists(catalogs: Catalogs) -> None:
    async with comparing_s3() as service:
        server = await signing_for(service, catalogs)
        await sign_list(server, "first")
        answer = await sign_list(server, "a", "b&c")
        assert answer.status_code == 200, answer.text
        assert answer.headers["Cache-Control"] == "no-cache"
        assert (service.calls, service.deleted) == (1, [])

        headers = {name: values[0] for name, values in answer.json()["headers"].items()}
        folder = server.table.removeprefix("s3://bucket/")
        async with httpx.AsyncClient() as client:
            uri = answer.json()["uri"]
            honest = await client.post(uri, content=delete_body(f"{folder}/a", f"{folder}/b&c"), headers=headers)
            other = await client.post(uri, content=delete_body("elsewhere"), headers=headers)
        assert (honest.status_code, other.status_code, len(service.deleted)) == (200, 400, 1)


@pytest.mark.parametrize("answer", [(403, "AccessDenied"), (500, "InternalError"), (400, "MalformedXML")])
async def test_a_service_without_a_clear_answer_gets_no_list_and_is_tried_again(
    catalogs: Catalogs, answer: tuple[int, str]
) -> None:
    async with comparing_s3() as service:
        server = await signing_for(service, catalogs)
        service.fails_with = answer
        refused = await sign_list(server, "a")
        assert refused.status_code == 503
        assert "Retry-After" in refused.headers

        service.fails_with = None
        assert (await sign_list(server, "a")).status_code == 200


async def test_a_service_that_does_not_answer_gets_no_list_and_other_requests_are_signed(catalogs: Catalogs) -> None:
    async with comparing_s3() as service:
        server = await signing_for(service, catalogs)
    uri = server.uri(f"{server.table}/a")

    assert (await sign_list(server, "a")).status_code == 503
    await server.signed("admin", "DELETE", uri, path=f"{NS}/tables/orders/sign")
