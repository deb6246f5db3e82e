"""`sandur catalog`, `sandur index`, `sandur admin` and `sandur probe`: commands that work directly on the store."""

import asyncio
import getpass
import json
import os
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from rich.console import Console

from sandur.catalog.credentials.server_rights import server_rights
from sandur.catalog.events import Source
from sandur.catalog.records import Catalog, Request
from sandur.catalog.security.principals import ADMIN
from sandur.cli.output import print_rows
from sandur.clock import SystemClock
from sandur.errors import BadRequest, Unavailable, Unfit
from sandur.operations.access import by_current_names
from sandur.operations.containers.catalogs import create_catalog, ensure_default_catalog, list_catalogs
from sandur.operations.credentials.profiles import own_store_profile
from sandur.operations.credentials.sealed_secrets import reseal
from sandur.operations.credentials.vend import probe_access
from sandur.operations.dry_run import DryRunStore
from sandur.operations.event_feed.subscriptions import reseal_subscriptions
from sandur.operations.identity.bootstrap import recover
from sandur.operations.index.rebuild import rebuild_all
from sandur.operations.janitors.sweep import list_layouts
from sandur.operations.lake import Lake, Lakes
from sandur.server.identity import validate_scope_name
from sandur.setting_sources import load_settings
from sandur.settings import Settings
from sandur.storage.contract import ObjectStore
from sandur.storage.locations import connect, open_store
from sandur.storage.probe import reach_store, verify_store

T = TypeVar("T")


class StoreFlags(NamedTuple):
    """The flags that name a store, and the user who changes it; None is the user of the operating system."""

    store: str | None = None
    config: Path | None = None
    allowed_locations: Sequence[str] = ()
    tenant: str | None = None
    workspace: str | None = None
    user: str | None = None

    def settings(self) -> Settings:
        flags = {
            "store": self.store,
            "allowed_locations": tuple(self.allowed_locations) or None,
            "tenant": validate_scope_name("tenant", self.tenant) if self.tenant else None,
            "workspace": validate_scope_name("workspace", self.workspace) if self.workspace else None,
        }
        return load_settings(file=self.config, environment=os.environ, flags=flags)

    def source(self) -> Source:
        """The origin of a change: an administrator on the store itself, by name."""
        return Source(kind="admin", principal=self.user or _system_user(), client="sandur")


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # In a container the user may have no name.
        return f"uid {os.getuid()}"


def make_catalog(name: str, *, root: str | None, flags: StoreFlags, as_json: bool) -> None:
    request = Request(hash="", source=flags.source())
    made = run_on_store(
        lambda lake: create_catalog(lake, name, root=root, properties={}, request=request), flags, access="create"
    )
    if as_json:
        print(json.dumps(_row(made)))  # noqa: T201 - output for machines
        return
    console = Console(highlight=False)
    console.print(f"Created catalog [bold]{made.name}[/]; its tables are stored below {made.root}", soft_wrap=True)
    if flags.allowed_locations:
        console.print(f"Start its servers with: --allow-location {made.root}", soft_wrap=True)


def show_catalogs(flags: StoreFlags, *, as_json: bool) -> None:
    catalogs = run_on_store(list_catalogs, flags, access="read")
    if as_json:
        print(json.dumps([_row(catalog) for catalog in catalogs]))  # noqa: T201 - output for machines
        return
    print_rows(("catalog", "root of its tables"), [(one.name, one.root) for one in catalogs], empty="No catalogs.")


def recover_administrator(flags: StoreFlags, *, as_json: bool) -> None:
    """Print the new secret of the principal admin, once it is in force."""
    user = flags.source().principal
    secret = run_on_store(lambda lake: recover(lake, user), flags, access="change")
    if as_json:
        print(json.dumps({"client_id": ADMIN, "client_secret": secret}))  # noqa: T201 - output for machines
        return
    console = Console(highlight=False)
    console.print("The principal admin has a new secret, which is not shown again. Its tokens have ended.")
    console.print(f"client id: {ADMIN}\nclient secret: {secret}", soft_wrap=True)


def reseal_credentials(flags: StoreFlags, *, as_json: bool) -> None:
    """Print how many credentials were sealed again; raise Unfit if no key opens the secrets of some."""

    async def reseal_all(lake: Lake) -> tuple[int, Sequence[str]]:
        resealed, failed = 0, []
        async for layout in list_layouts(lake.store, lake.settings):
            for work in (reseal, reseal_subscriptions):
                done, unopened = await work(lake.in_workspace(layout))
                resealed += done
                failed += [f"{layout.tenant}/{layout.workspace}/{name}" for name in unopened]
        return resealed, failed

    if not flags.settings().sealing_keys:
        raise BadRequest("no key: set sealing_keys (SANDUR_SEALING_KEYS) to the new key and the keys before it")
    resealed, failed = run_on_store(reseal_all, flags, access="change")
    if as_json:
        print(json.dumps({"resealed": resealed, "failed": failed}))  # noqa: T201 - output for machines
    else:
        Console().print(f"{resealed} credentials and subscriptions sealed with the first key")
    if failed:
        raise Unfit(
            f"no key opens the secrets of {len(failed)} credentials or subscriptions, such as {failed[0]}; "
            "set or rotate them again"
        )


def _row(catalog: Catalog) -> dict[str, str]:
    return {"name": catalog.name, "root": catalog.root, "id": catalog.id}


def run_on_store(
    work: Callable[[Lake], Awaitable[T]], flags: StoreFlags, *, access: Literal["read", "change", "create"]
) -> T:
    """Run an operation on the lake of the settings, directly on the store and without a server.

    Only with the access `create` may the store be new. With `read`, nothing is written, not even a missing index.
    """
    settings = flags.settings()

    async def run() -> T:
        clock = SystemClock()
        store = connect(settings, clock, creates=access == "create")
        lakes = Lakes(settings, clock, DryRunStore(store) if access == "read" else store)
        try:
            if access == "read":
                await reach_store(store, f"store {settings.store}")
                found = lakes.lake(settings.tenant or "default", settings.workspace or "default")
                return await work(await by_current_names(found))
            lake = await by_current_names(await lakes.start())
            if access == "create":
                await ensure_default_catalog(lake)
            return await work(lake)
        finally:
            await lakes.close()

    return asyncio.run(run())


def rebuild_indexes(catalog: str | None, flags: StoreFlags, *, as_json: bool) -> None:
    """Print the number of rebuilt indexes; raise Unavailable if some could not be rebuilt."""

    async def rebuild(lake: Lake) -> tuple[int, list[str]]:
        rebuilt, failed = 0, []
        async for scope, error in rebuild_all(lake, catalog):
            if error is None:
                rebuilt += 1
            else:
                failed.append(f"{lake.layout.list_index(scope)}: {error}")
        return rebuilt, failed

    rebuilt, failed = run_on_store(rebuild, flags, access="change")
    if as_json:
        print(json.dumps({"rebuilt": rebuilt, "failed": failed}))  # noqa: T201 - output for machines
    else:
        Console().print(f"{rebuilt} indexes rebuilt")
    if failed:
        raise Unavailable(f"{len(failed)} indexes could not be rebuilt, for example {failed[0]}")


def probe_store(*, store: str | None, config: Path | None, as_json: bool) -> None:
    """Print what the store guarantees, which rights the server needs there, and whether clients can get credentials."""
    settings = StoreFlags(store, config).settings()
    asyncio.run(_probe(settings, open_store(settings.store, settings), as_json=as_json))


async def _probe(settings: Settings, store: ObjectStore, *, as_json: bool) -> None:
    url, lakes = settings.store, Lakes(settings, SystemClock(), store)
    try:
        proven = [*await verify_store(store, SystemClock(), f"store {url}")]
        lake = lakes.lake("default", "default")
        profile = own_store_profile(lake)
        if profile and await probe_access(lake, profile):
            proven.append(f"credentials for clients are issued ({profile.access})")
    finally:
        await store.close()
    rights = server_rights(lake.locations.own, profile) if profile else ()
    if as_json:
        print(json.dumps({"store": url, "proven": proven, "rights": rights}))  # noqa: T201 - output for machines
        return
    console = Console()
    for guarantee in proven:
        console.print(f"[green]✓[/] {guarantee}")
    console.print(f"[bold]{url}[/] passes every check.")
    if rights:
        console.print("The server needs these rights there, and no others:")
    for right in rights:
        console.print(f"  {right}", markup=False, highlight=False, soft_wrap=True)
