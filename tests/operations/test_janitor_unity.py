"""Dropped records of Unity Catalog's API are deleted a day later; needed ones stay."""

import asyncio
import contextlib

from sandur.catalog.identifiers import Identifier
from sandur.catalog.records import ModelVersion
from sandur.catalog.security.users import Email, UserResource
from sandur.operations.containers.catalogs import create_catalog
from sandur.operations.containers.drop import drop_catalog
from sandur.operations.lake import Lake
from sandur.operations.unity import access, model_versions, securables
from sandur.storage.contract import list_all
from tests.fakes.dying_store import Died, DyingStore
from tests.operations.janitor_runs import LONG_MS, Cluster
from tests.operations.requests import NAMESPACE, keyed_request, request

VOLUME = Identifier(*NAMESPACE, "v")
MODEL = Identifier(*NAMESPACE, "m")


async def make_volume(server: Lake, label: str = "volume") -> object:
    return await securables.create_volume(
        server, VOLUME, volume_type="MANAGED", location=None, comment=None, request=keyed_request(label)
    )


async def keys(cluster: Cluster, folder: str) -> list[str]:
    return [listed.key for listed in await list_all(cluster.store, folder)]


async def test_a_volume_without_a_name_is_deleted_and_a_living_one_stays() -> None:
    cluster = await Cluster.with_catalog()
    folder = cluster.server().layout.securables_folder()
    for dies_at in range(1, 40):
        server = cluster.server(DyingStore(cluster.store, dies_at=dies_at, after=True))
        with contextlib.suppress(Died):
            await make_volume(server, f"volume {dies_at}")
        await server.background.drain()
        await asyncio.sleep(0)
        if await keys(cluster, folder):
            break
    assert len(await keys(cluster, folder)) == 1

    for _ in range(4):
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    assert await keys(cluster, folder) == []
    living = cluster.server()
    await make_volume(living, "again")
    await living.background.drain()
    cluster.clock.advance(LONG_MS)
    await cluster.sweep()
    assert (await securables.load_securable(cluster.server(), VOLUME, "volume")).uuid
    assert not cluster.errors


async def test_dropped_securables_leave_nothing_behind() -> None:
    cluster = await Cluster.with_catalog()
    server = cluster.server()
    await create_catalog(server, "gone", root=None, properties={}, request=request("gone"))
    await drop_catalog(server, "gone", force=False, request=keyed_request("drop gone"))
    await make_volume(server)
    await securables.drop_securable(server, VOLUME, "volume", keyed_request("drop v"))
    user = await access.create_user(server, UserResource(emails=(Email("me@x.org"),)), request("user"))
    await access.drop_user(server, user.id, keyed_request("drop user"))
    await securables.create_model(server, MODEL, comment=None, request=request("model"))
    for number in range(2):
        wanted = model_versions.NewVersion("source", None, None)
        await model_versions.create_version(server, MODEL, wanted, request(f"version {number}"))
    await model_versions.drop_version(server, MODEL, 1, keyed_request("drop version"))
    await server.background.drain()
    layout = server.layout

    for _ in range(5):
        cluster.clock.advance(LONG_MS)
        await cluster.sweep()

    fresh = cluster.server()
    assert await keys(cluster, layout.catalogs_folder()) == [layout.catalog("main")]
    assert await keys(cluster, layout.users_folder()) == []
    model = await securables.load_securable(fresh, MODEL, "model")
    assert await keys(cluster, layout.securables_folder()) == [layout.securable(model.uuid)]
    assert await keys(cluster, layout.model_versions_folder(model.uuid)) == [layout.model_version(model.uuid, 2)]
    third: ModelVersion = await model_versions.create_version(
        fresh, MODEL, model_versions.NewVersion("source", None, None), request("third")
    )
    assert third.version == 3
    assert not cluster.errors
