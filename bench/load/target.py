"""A server under load: its address, its processes, and the objects that the load created."""

import http.client
import time
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import quote, urlencode

import msgspec

_ANSWER_SECONDS_MAX: Final = 30.0
_READY_TRIES_MAX: Final = 60
_READY_WAIT_SECONDS: Final = 0.5
_SHOWN_CHARS_MAX: Final = 300

Json = Mapping[str, object]


class Unusable(Exception):
    """A server lacks something that every workload needs."""


class _Config(msgspec.Struct):
    defaults: dict[str, str] = {}
    overrides: dict[str, str] = {}


class Target:
    """One server. `uri` is the address for engines, without the version."""

    def __init__(self, name: str, uri: str, *, warehouse: str = "", pids: Sequence[int] = ()) -> None:
        self.name = name
        self.address, _, base = uri.removeprefix("http://").partition("/")
        self.pids = list(pids)
        self.headers: dict[str, str] = {}  # Of every request, such as Authorization.
        self.root = ""
        self.namespace = ""
        self.tables = 0  # In the namespace that grows.
        self.is_sure = True  # Whether every creation got an answer.
        self._base = f"/{base}" if base else ""
        self._warehouse = warehouse

    def connect(self, run: str) -> None:
        """Read the prefix and create a namespace for this run; waits for a server that is still starting."""
        query = "?" + urlencode({"warehouse": self._warehouse}) if self._warehouse else ""
        status, body = self._call("GET", f"{self._base}/v1/config{query}")
        if status != 200:
            raise Unusable(f"{self.name}: GET /v1/config answered {status}: {_render(body)}")
        config = msgspec.json.decode(body, type=_Config)
        prefix = {**config.defaults, **config.overrides}.get("prefix", "")
        encoded = prefix if "%" in prefix else quote(prefix, safe="")
        self.root = f"{self._base}/v1" + (f"/{encoded}" if prefix else "")
        self.namespace = f"load_{run}"
        self.make_namespace(self.namespace)

    def make_namespace(self, name: str) -> None:
        status, body = 0, b""
        for _ in range(_READY_TRIES_MAX):
            status, body = self._call("POST", f"{self.root}/namespaces", {"namespace": [name], "properties": {}})
            if status in {200, 409}:
                return
            time.sleep(_READY_WAIT_SECONDS)  # The peer answers before its warehouse exists.
        raise Unusable(f"{self.name}: createNamespace answered {status}: {_render(body)}")

    def _call(self, method: str, path: str, body: Json | None = None) -> tuple[int, bytes]:
        link = http.client.HTTPConnection(self.address, timeout=_ANSWER_SECONDS_MAX)
        try:
            headers = {"Accept": "application/json", "Content-Type": "application/json", **self.headers}
            link.request(method, path, None if body is None else msgspec.json.encode(body), headers)
            answer = link.getresponse()
            return answer.status, answer.read()
        except OSError as fault:
            raise Unusable(f"{self.name}: no answer at {self.address}: {fault}") from fault
        finally:
            link.close()


def _render(body: bytes) -> str:
    return body[:_SHOWN_CHARS_MAX].decode(errors="replace")
