"""Where a command acts: on a server, as the person or program of a profile, or on a store itself, as its owner.

On a store, the application of the server runs in this process, without a socket and without logins. So both targets
have the same operations, the same answers and the same errors.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, Literal, TypeVar

from msgspec.structs import replace

from sandur.catalog.identifiers import parse_path
from sandur.cli.flags import TargetFlags
from sandur.client.catalog import CatalogClient, Name
from sandur.client.profiles import Profile, Profiles, user_profiles
from sandur.client.sessions import Session, Target, connected, find_target
from sandur.clock import Clock, SystemClock

T = TypeVar("T")

_STORE_SERVER: Final = "http://127.0.0.1"
"""The address of the application in this process: nothing connects to it."""

Access = Literal["read", "change"]


def name_of(text: str) -> Name:
    """The name that a person typed; raises BadRequest."""
    return Name(parse_path(text))


def run_on_target(work: Callable[[CatalogClient], Awaitable[T]], flags: TargetFlags, *, access: Access = "read") -> T:
    """Run requests on the server or the store that the flags, the environment or the current profile name.

    With the access `read`, nothing is written to a store, not even a missing index.
    """

    async def run() -> T:
        clock = SystemClock()
        async with open_session(flags, clock, access=access) as session:
            return await work(CatalogClient(session, clock))

    return asyncio.run(run())


@contextlib.asynccontextmanager
async def open_session(flags: TargetFlags, clock: Clock, *, access: Access) -> AsyncIterator[Session]:
    profiles = user_profiles(os.environ)
    if is_store(flags, profiles):
        async with store_session(flags, clock, access=access) as session:
            yield session
        return
    target = find_target(profiles, profile=flags.profile, server=flags.server, environment=os.environ)
    async with connected(target, profiles, clock) as session:
        yield session


def is_store(flags: TargetFlags, profiles: Profiles) -> bool:
    """Whether a command acts on a store: a flag decides, then the environment, then the current profile.

    Without any of them, the command acts on the store of the settings.
    """
    if flags.store or flags.server or flags.profile:
        return bool(flags.store)
    if os.environ.get("SANDUR_SERVER") or os.environ.get("SANDUR_PROFILE"):
        return False
    if flags.config or os.environ.get("SANDUR_STORE"):
        return True
    config = profiles.read()
    return config.current not in config.profiles


@contextlib.asynccontextmanager
async def store_session(flags: TargetFlags, clock: Clock, *, access: Access) -> AsyncIterator[Session]:
    """A session with the application of the server in this process, which acts for the user of the flags."""
    import httpx  # noqa: PLC0415 - only for this target, like all below

    from sandur.cli.store_admin import StoreFlags  # noqa: PLC0415
    from sandur.operations.containers.catalogs import ensure_default_catalog  # noqa: PLC0415
    from sandur.operations.dry_run import DryRunStore  # noqa: PLC0415
    from sandur.server.identity import bearer_on_store  # noqa: PLC0415
    from sandur.server.logs import temporary_logging  # noqa: PLC0415
    from sandur.server.serve import build  # noqa: PLC0415
    from sandur.storage.locations import connect  # noqa: PLC0415
    from sandur.storage.probe import reach_store  # noqa: PLC0415

    named = StoreFlags(flags.store, flags.config, flags.allowed_locations, user=flags.user)
    settings = replace(named.settings(), authentication="off", host="127.0.0.1", preview="sql")
    async with contextlib.AsyncExitStack() as closing:
        closing.enter_context(temporary_logging("text", "error"))
        store = connect(settings, clock, creates=False)
        app, catalog = build(
            settings,
            clock=clock,
            store=DryRunStore(store) if access == "read" else store,
            unauthenticated=bearer_on_store(named.source().principal),
        )
        closing.push_async_callback(catalog.close)
        if access == "read":
            await reach_store(store, f"store {settings.store}")
        else:
            await ensure_default_catalog(await catalog.lakes.start())
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), headers={"User-Agent": "sandur"}) as http:
            target = Target("", Profile(server=_STORE_SERVER))
            yield _StoreSession(http, target, user_profiles(os.environ), clock, label=f"store {settings.store}")


class _StoreSession(Session):
    """Requests that need no token."""

    async def token(self) -> str:
        return ""
