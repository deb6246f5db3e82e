"""mock-oauth2-server, a second identity provider, written in Kotlin: one server with any number of issuers.

It accepts every secret, and its tokens have any audience that the configuration names.
"""

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from tests.interop.engines.environments import NotInstalled, installed, java_home, run
from tests.servers.processes import LOOPBACK, free_ports, running

_POM: Final = Path(__file__).parent / "mock_oauth2" / "pom.xml"
_CLASS: Final = "no.nav.security.mock.oauth2.StandaloneMockOAuth2ServerKt"
_JAVA_VERSION: Final = 17
_SECONDS_MAX: Final = 60

Issuers = Mapping[str, Mapping[str, Mapping[str, object]]]
"""The claims of each client's tokens, by issuer and client id."""


class MockOauth2:
    """A running server."""

    def __init__(self, url: str) -> None:
        self._url = url

    def issuer(self, name: str) -> str:
        """The issuer of this name, as its tokens have it."""
        return f"{self._url}/{name}"

    def token(self, issuer: str, client: str) -> str:
        """A new access token of a program, by client credentials."""
        form = {"grant_type": "client_credentials", "scope": "catalog", "client_id": client, "client_secret": "any"}
        answer = httpx.post(f"{self.issuer(issuer)}/token", data=form, timeout=_SECONDS_MAX)
        return str(answer.raise_for_status().json()["access_token"])


@contextlib.contextmanager
def mock_oauth2(folder: Path, issuers: Issuers) -> Iterator[MockOauth2]:
    """A fresh server; NotInstalled if Java or Maven is missing."""
    jars = _jars()
    [port] = free_ports(1)
    config = {"interactiveLogin": False, "tokenCallbacks": [_callback(name, issuers[name]) for name in issuers]}
    environment = {"SERVER_HOSTNAME": LOOPBACK, "SERVER_PORT": str(port), "JSON_CONFIG": json.dumps(config)}
    command: list[str | Path] = [java_home(_JAVA_VERSION) / "bin" / "java", "-Xmx128m", "-cp", f"{jars}/*", _CLASS]
    url = f"http://{LOOPBACK}:{port}"
    with running(command, answers=f"{url}/isalive", folder=folder, environment={**os.environ, **environment}):
        yield MockOauth2(url)


def _jars() -> Path:
    def install(home: Path) -> None:
        if (maven := shutil.which("mvn")) is None:
            raise NotInstalled("mvn is not installed")
        goal = ("dependency:copy-dependencies", f"-DoutputDirectory={home / 'jars'}")
        run([maven, "--quiet", "--batch-mode", "--file", _POM, *goal])

    return installed("mock-oauth2", [_POM], install) / "jars"


def _callback(issuer: str, clients: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    mappings = [{"requestParam": "client_id", "match": name, "claims": dict(clients[name])} for name in clients]
    return {"issuerId": issuer, "tokenExpiry": 600, "requestMappings": mappings}
