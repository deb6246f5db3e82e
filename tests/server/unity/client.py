"""A client of the Unity Catalog API for tests."""

from typing import Any, Final

import httpx

UNITY: Final = "/api/2.1/unity-catalog"
CONTROL: Final = "/api/1.0/unity-control"

Json = dict[str, Any]


class Unity:
    """A client of one API; paths are those of the specification."""

    def __init__(self, http: httpx.AsyncClient, base: str = UNITY) -> None:
        self.http = http
        self._base = base

    async def get(self, path: str, **params: Any) -> httpx.Response:
        return await self.http.get(self._base + path, params=params)

    async def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        return await self.http.post(self._base + path, json=body, headers=_named(headers))

    async def patch(self, path: str, body: object, **headers: str) -> httpx.Response:
        return await self.http.patch(self._base + path, json=body, headers=_named(headers))

    async def delete(self, path: str, **params: Any) -> httpx.Response:
        return await self.http.delete(self._base + path, params=params)

    async def made(self, path: str, body: object) -> Json:
        """The answer to a creation that must succeed."""
        answer = await self.post(path, body)
        assert answer.status_code == 200, answer.text
        made: Json = answer.json()
        return made

    async def names(self, path: str, key: str, **params: Any) -> list[str]:
        """The names in a list, all of its pages."""
        names: list[str] = []
        token = ""
        for _ in range(100):
            answer = await self.get(path, **params, **({"page_token": token} if token else {}))
            assert answer.status_code == 200, answer.text
            page = answer.json()
            names += [entry["name"] for entry in page[key]]
            token = page.get("next_page_token") or ""
            if not token:
                return names
        raise AssertionError("the list does not end")


def _named(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


def code(answer: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error, which must have the form that clients expect."""
    body = answer.json()
    assert set(body) == {"error_code", "message", "details"}, body
    assert body["message"]
    assert body["details"] == [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": body["error_code"]}]
    return answer.status_code, body["error_code"]
