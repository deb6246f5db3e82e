"""A server with authentication and an identity provider, and users of the command line."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.commands import User
from tests.server.logins import ADMIN_SECRET
from tests.server.process import ServerProcess, server_process
from tests.servers.oidc_provider import AUDIENCE, SCOPE, OidcProvider


@pytest.fixture(scope="session")
def secured(running_oidc_provider: OidcProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that accepts the tokens of the provider."""
    provider = {
        "issuer": running_oidc_provider.issuer,
        "audience": AUDIENCE,
        "groups_claim": "groups",
        "cli_client_id": "cli",
        "cli_scopes": f"openid offline_access {SCOPE}",
    }
    folder = tmp_path_factory.mktemp("secured")
    settings = {"authentication": "on", "admin_secret": ADMIN_SECRET, "fsync": "never"}
    with server_process(folder, oidc=json.dumps([provider]), **settings) as running:
        yield running


@pytest.fixture
def user(tmp_path: Path) -> User:
    """A user without profiles."""
    return User(tmp_path / "config")


@pytest.fixture
def admin(tmp_path: Path, secured: ServerProcess) -> User:
    """The administrator, logged in."""
    user = User(tmp_path / "admin")
    arguments = ("--client-id", "admin", "--client-secret-stdin", "--server", secured.url)
    done = user.run("login", *arguments, stdin=f"{ADMIN_SECRET}\n")
    assert done.code == 0, done.err
    return user
