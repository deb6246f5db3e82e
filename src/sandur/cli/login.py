"""`sandur login`, `whoami`, `logout` and `profile`: who a user of the command line is, on which server."""

import asyncio
import contextlib
import getpass
import os
import sys
import threading
import webbrowser
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from sandur.cli.flags import ServerFlags
from sandur.cli.output import print_json, print_rows, say
from sandur.client.openid import Issuer, Provider, discover, is_private
from sandur.client.profiles import Credentials, Profile, check_name, require_profile, user_profiles
from sandur.client.sessions import (
    API,
    LoginDescription,
    Session,
    Target,
    checked_server,
    connected,
    find_target,
    load_login,
)
from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, SandurError, Unauthenticated

T = TypeVar("T")

_SECRET_CHARS_MAX: Final = 1_000
_MS: Final = 1_000


class LoginFlags(NamedTuple):
    """The flags of `sandur login`."""

    shared: ServerFlags
    client_id: str | None
    secret_file: Path | None
    secret_from_stdin: bool
    is_by_device: bool
    issuer: str | None
    opens_browser: bool
    port: int
    tenant: str | None
    workspace: str | None


def run_on_server(work: Callable[[Session], Awaitable[T]], flags: ServerFlags) -> T:
    """Run requests on the server that the flags, the environment or the current profile name."""
    profiles = user_profiles(os.environ)
    target = find_target(profiles, profile=flags.profile, server=flags.server, environment=os.environ)

    async def run() -> T:
        async with connected(target, profiles, SystemClock()) as session:
            return await work(session)

    return asyncio.run(run())


async def fetch(session: Session, path: str, **query: str) -> Any:  # noqa: ANN401 - JSON
    """The JSON of a read below the server's own API."""
    return msgspec.json.decode(await session.request("GET", API + path, query=query))


def log_in(flags: LoginFlags, clock: Clock | None = None) -> None:
    """Get a token, store it with its profile, and print who that is. The clock is that of the system."""
    profiles, time = user_profiles(os.environ), clock or SystemClock()
    name, profile = _chosen(flags)
    secret = _secret(flags)
    if not is_private(profile.server):
        say(f"Warning: {profile.server} is not https: others on the network can read what is sent, also tokens.")

    async def run() -> tuple[Credentials | None, dict[str, Any]]:
        async with connected(Target(name, profile), profiles, time) as session:
            described = await session.describe_login()
            held = await _credentials(session, described, flags, secret, time)
            known = Target(name, profile, held.access_token if held else "")
            return held, await fetch(Session(session.http, known, profiles, time), "/me")

    held, me = asyncio.run(run())
    known = replace(profile, issuer=held.issuer, client_id=held.client_id) if held else profile
    profiles.save(name, known, held)
    if held is None:
        say(f"{profile.server} needs no login: authentication is off.")
    _print_caller(me, name, profile.server, as_json=flags.shared.as_json)


def _chosen(flags: LoginFlags) -> tuple[str, Profile]:
    """The name of the profile, and what it becomes."""
    config = user_profiles(os.environ).read()
    shared = flags.shared
    name = shared.profile or os.environ.get("SANDUR_PROFILE") or config.current
    check_name(name)
    server = shared.server or os.environ.get("SANDUR_SERVER")
    known = config.profiles.get(name)
    if known is None and not server:
        raise BadRequest(f"profile {name} has no server yet; pass it with --server URL")
    if known is None or (server and known.server != checked_server(server)):
        known = Profile(server=checked_server(server or ""))
    tenant = known.tenant if flags.tenant is None else flags.tenant
    workspace = known.workspace if flags.workspace is None else flags.workspace
    return name, replace(known, tenant=tenant, workspace=workspace)


def _secret(flags: LoginFlags) -> str | None:
    """The client secret of a program; None if a person logs in. It is never an argument, which others could read."""
    if flags.secret_file and flags.secret_from_stdin:
        raise BadRequest("--client-secret-file and --client-secret-stdin exclude each other: choose one")
    if not flags.secret_file and not flags.secret_from_stdin:
        return None
    if not flags.client_id:
        raise BadRequest("a client secret needs the name of its principal: pass it with --client-id")
    try:
        text = flags.secret_file.read_text(encoding="utf-8") if flags.secret_file else _read_secret()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"--client-secret-file {flags.secret_file}: cannot be read: {error}") from error
    secret = text.strip()
    if not secret or len(secret) > _SECRET_CHARS_MAX:
        raise BadRequest("the client secret is empty or too long")
    return secret


def _read_secret() -> str:
    """The first line of the standard input; a terminal does not show what is typed."""
    return getpass.getpass("Client secret: ") if sys.stdin.isatty() else sys.stdin.readline()


async def _credentials(
    session: Session, described: LoginDescription, flags: LoginFlags, secret: str | None, clock: Clock
) -> Credentials | None:
    """The credentials of a login; None for a server without authentication."""
    if described.authentication == "off":
        return None
    if secret is not None:
        return await session.login_with_secret(flags.client_id or "", secret)
    issuer = _issuer(session.target, described, flags.issuer)
    client_id = flags.client_id or issuer.client_id
    if not client_id:
        raise BadRequest(
            f"the server names no client of {issuer.issuer} for logins: pass one with --client-id, or set "
            "cli_client_id in the settings of the server"
        )
    provider = await discover(session.http, issuer, client_id)
    tokens = await (
        provider.login_by_device(say, clock)
        if flags.is_by_device
        else provider.login_by_browser(_page_opener(provider, flags), port=flags.port)
    )
    return await session.exchange_tokens(tokens, issuer, client_id)


def _issuer(target: Target, described: LoginDescription, wanted: str | None) -> Issuer:
    """The identity provider of the login; raises BadRequest if it is not known or not the only one."""
    known = [one.issuer for one in described.issuers]
    found = [one for one in described.issuers if wanted in {None, one.issuer}]
    if len(found) == 1:
        return found[0]
    if not known:
        raise BadRequest(
            f"{target.server} has no identity provider: log in as a program with --client-id NAME and "
            "--client-secret-file FILE or --client-secret-stdin"
        )
    if not found:
        raise BadRequest(f"{target.server} does not accept {wanted}; its issuers are: {', '.join(known)}")
    raise BadRequest(f"{target.server} has several identity providers; choose with --issuer: {', '.join(known)}")


def _page_opener(provider: Provider, flags: LoginFlags) -> Callable[[str], None]:
    def show(url: str) -> None:
        say(f"Log in at {provider.issuer.issuer} with this address:\n{url}")
        if flags.opens_browser:
            # A browser in the terminal runs until its user ends it, and this program must answer it meanwhile.
            threading.Thread(target=_open_browser, args=(url,), daemon=True).start()

    return show


def _open_browser(url: str) -> None:
    with contextlib.suppress(webbrowser.Error):  # Without a browser, the printed address is enough.
        webbrowser.open(url)


def show_caller(flags: ServerFlags) -> None:
    """Print who the requests of the profile come from, as the server sees it."""

    async def load(session: Session) -> tuple[Target, dict[str, Any]]:
        return session.target, await fetch(session, "/me")

    target, me = run_on_server(load, flags)
    _print_caller(me, target.name, target.server, as_json=flags.as_json)


def _print_caller(me: dict[str, Any], profile: str, server: str, *, as_json: bool) -> None:
    shown = {"profile": profile, "server": server, **me}
    if as_json:
        print_json(shown)
        return
    if shown["expires_at"]:
        seconds = max(shown["expires_at"] - SystemClock().now_ms(), 0) // _MS
        shown["expires_at"] = f"in {seconds // 60} min {seconds % 60} s"
    shown["groups"] = ", ".join(shown["groups"])
    print_rows(["", ""], [[key.replace("_", " "), str(value)] for key, value in shown.items() if value], empty="")


def log_out(flags: ServerFlags, *, forgets_profile: bool) -> None:
    """Remove the tokens of a profile, and make the provider forget the refresh token."""
    profiles = user_profiles(os.environ)
    config = profiles.read()
    name = flags.profile or os.environ.get("SANDUR_PROFILE") or config.current
    profile = require_profile(config, name)
    held = profiles.credentials(name)
    # First of all, so that a provider without an answer cannot keep the tokens here.
    if forgets_profile:
        profiles.remove(name)
    else:
        with profiles.locked():
            profiles.store_credentials(name, None)
    if held and held.refresh_token:
        _revoke(held)
    say(f"Logged out of {profile.server}." if held else f"Profile {name} is not logged in.")
    if held and held.expires_ms > SystemClock().now_ms():
        say("A copy of its token still works and can be renewed, until the tokens of the principal are revoked.")


def _revoke(held: Credentials) -> None:
    async def revoke() -> None:
        async with connected(
            Target("", Profile(server=held.server)), user_profiles(os.environ), SystemClock()
        ) as session:
            provider = await discover(session.http, Issuer(held.issuer, held.audience), held.client_id)
            await provider.revoke(held.refresh_token)

    try:
        asyncio.run(revoke())
    except SandurError as error:
        say(f"The refresh token is removed here, but {held.issuer} may still accept a copy: {error}")


def show_profiles(flags: ServerFlags) -> None:
    """Print the profiles. `current` marks that of commands that name none."""
    profiles = user_profiles(os.environ)
    config = profiles.read()
    now_ms = SystemClock().now_ms()
    found = []
    for name, profile in sorted(config.profiles.items()):
        held = profiles.credentials(name)
        if held is None:
            state = "logged out"
        elif held.refresh_token or held.expires_ms > now_ms or not held.expires_ms:
            state = "logged in"
        else:
            state = "expired"
        found.append({"name": name, "current": name == config.current, "server": profile.server, "state": state})
    if flags.as_json:
        print_json(found)
        return
    rows = [["*" if one["current"] else "", *(str(one[key]) for key in ("name", "server", "state"))] for one in found]
    print_rows(
        ["", "profile", "server", "state"], rows, empty="No profiles. Create one with: sandur login --server URL"
    )


def print_token(flags: ServerFlags) -> None:
    """Print the token for the server, for a program that takes one."""
    found = load_login(flags.profile, os.environ, server=flags.server)
    if not found.token:
        raise Unauthenticated(f"{found.server}: not logged in; log in with: sandur login --server {found.server}")
    if flags.as_json:
        print_json({"server": found.server, "token": found.token})
        return
    print(found.token)  # noqa: T201 - output for machines


def use_profile(name: str) -> None:
    user_profiles(os.environ).use(name)
    say(f"Commands without --profile now use {name}.")
