"""Sealed secrets: which key opens them, what a rotation leaves, and what cannot be opened."""

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from sandur.catalog.credentials.registry import AwsIamRole, Credential, CredentialUpdate
from sandur.catalog.credentials.storage_access import StorageRequest, StorageSecrets
from sandur.clock import SystemClock
from sandur.errors import BadRequest, Unfit
from sandur.operations.credentials.sealed_secrets import Sealing, new_sealing_key, reseal, sealing_keys
from sandur.operations.lake import Lake
from sandur.operations.unity import registry
from sandur.storage.contract import ObjectStore
from sandur.storage.layout import Layout
from sandur.storage.local import LocalStore
from sandur.storage.memory import MemoryStore
from tests.cli.commands import User
from tests.operations.lakes import make_lake
from tests.operations.requests import request

STORAGE = StorageRequest(access="static", access_key_id="id", secret_access_key="hush")  # noqa: S106 - an example
ROLE = AwsIamRole("arn:aws:iam::1:role/r")


def lake_with(store: ObjectStore, *keys: str) -> Lake:
    return make_lake(store, SystemClock(), sealing_keys=keys)


async def make_credential(lake: Lake, name: str = "k") -> Credential:
    return await registry.create_credential(
        lake, name, role=None, comment=None, storage=STORAGE, request=request(f"create {name}")
    )


async def stored(lake: Lake, name: str = "k") -> Credential:
    return (await registry.load_registry(lake)).credentials[name]


def secret_of(lake: Lake, credential: Credential) -> str:
    return lake.feature(Sealing).open(credential).secret_access_key


async def test_the_first_key_seals_and_every_key_opens() -> None:
    old, new, store = new_sealing_key(), new_sealing_key(), MemoryStore()
    await make_credential(lake_with(store, old))

    both = lake_with(store, new, old)
    await make_credential(both, "l")

    assert secret_of(both, await stored(both)) == "hush"
    assert secret_of(lake_with(MemoryStore(), new), await stored(both, "l")) == "hush"
    with pytest.raises(Unfit, match="Credential l: no key of the setting sealing_keys"):
        secret_of(lake_with(MemoryStore(), old), await stored(both, "l"))


async def test_a_reseal_makes_the_old_key_needless_and_changes_nothing_else() -> None:
    old, new, store = new_sealing_key(), new_sealing_key(), MemoryStore()
    before = lake_with(store, old)
    first = await make_credential(before)
    await registry.create_credential(before, "role", role=ROLE, comment=None, request=request("role"))

    done = await reseal(lake_with(store, new, old))

    after = lake_with(store, new)
    assert done == (1, [])
    assert secret_of(after, await stored(after)) == "hush"
    assert replace(await stored(after), storage=first.storage) == first
    assert await reseal(lake_with(MemoryStore(), new)) == (0, [])


async def test_a_reseal_names_what_no_key_opens_and_seals_the_rest() -> None:
    lost, old, new, store = new_sealing_key(), new_sealing_key(), new_sealing_key(), MemoryStore()
    await make_credential(lake_with(store, lost), "lost")
    await make_credential(lake_with(store, old))

    done = await reseal(lake_with(store, new, old))

    after = lake_with(store, new)
    assert done == (1, ["lost"])
    assert secret_of(after, await stored(after)) == "hush"


async def test_secrets_that_cannot_be_opened_can_be_set_again() -> None:
    store = MemoryStore()
    await make_credential(lake_with(store, new_sealing_key()))
    lake = lake_with(store, new_sealing_key())

    await registry.update_credential(lake, "k", CredentialUpdate(storage=STORAGE), request("again"))

    assert secret_of(lake, await stored(lake)) == "hush"


async def test_the_secrets_of_a_credential_do_not_open_for_another() -> None:
    lake = lake_with(MemoryStore(), new_sealing_key())
    first, second = await make_credential(lake), await make_credential(lake, "l")

    with pytest.raises(Unfit):
        secret_of(lake, replace(second, storage=first.storage))


async def test_damaged_secrets_are_not_opened() -> None:
    lake = lake_with(MemoryStore(), new_sealing_key())
    credential = await make_credential(lake)
    assert credential.storage

    for sealed in ("x", credential.storage.sealed[:-4], "é" * 100):
        with pytest.raises(Unfit):
            secret_of(lake, replace(credential, storage=replace(credential.storage, sealed=sealed)))


async def test_a_credential_without_secrets_needs_no_key() -> None:
    lake = make_lake()
    role = await registry.create_credential(lake, "k", role=ROLE, comment=None, request=request("k"))

    assert lake.feature(Sealing).open(role) == StorageSecrets()


@pytest.mark.parametrize("key", ["", "short", "é" * 44])
def test_a_text_that_is_not_a_key_is_refused_without_printing_it(key: str) -> None:
    with pytest.raises(BadRequest, match="sandur admin sealing-key") as refused:
        sealing_keys((new_sealing_key(), key))

    assert not key or key not in str(refused.value)


def test_the_command_reseals_every_workspace(tmp_path: Path) -> None:
    user = User(tmp_path / "home")
    old, new = (user.run("admin", "sealing-key").out.strip() for _ in range(2))
    folder = str(tmp_path / "store")
    assert user.run("catalog", "create", "c", "--store", folder).code == 0
    _fill(LocalStore(Path(folder), fsync="never"), old)

    without = user.run("admin", "reseal", "--store", folder)
    user.environment["SANDUR_SEALING_KEYS"] = new
    failed = user.run("admin", "reseal", "--store", folder)
    user.environment["SANDUR_SEALING_KEYS"] = f"{new},{old}"
    done = user.run("admin", "reseal", "--store", folder, "--json")
    user.environment["SANDUR_SEALING_KEYS"] = new
    again = user.run("admin", "reseal", "--store", folder, "--json")

    assert (without.code, "SANDUR_SEALING_KEYS" in without.err) == (1, True)
    assert (failed.code, "default/default/k" in failed.err) == (1, True)
    assert done.json == again.json == {"resealed": 2, "failed": []}
    assert "(hidden)" in user.run("settings", "--store", folder).out
    assert new not in user.run("settings", "--store", folder, "--json").out


def _fill(store: ObjectStore, key: str) -> None:
    """A credential in each of two workspaces."""

    async def fill() -> None:
        lake = lake_with(store, key)
        await make_credential(lake)
        await make_credential(lake.in_workspace(Layout("default", "second")), "other")

    asyncio.run(fill())
