"""Collect metadata files in tests, in the same steps as the job of the pipeline."""

from collections.abc import Mapping

from sandur.catalog.garbage import Folder, folders_in_use
from sandur.errors import SandurError
from sandur.operations.janitors import metadata
from sandur.operations.lake import Lake
from sandur.storage.contract import list_all
from tests.operations.requests import identifier_of


async def folders(lake: Lake) -> Mapping[str, Folder]:
    layout = lake.layout
    uuids = [layout.parse_pointer(listed.key) for listed in await list_all(lake.store, layout.pointers_folder())]
    pointers = [await lake.pointer(uuid).read() for uuid in uuids]
    return folders_in_use([pointer.value for pointer in pointers if pointer], roots=(lake.area,))


async def collect(lake: Lake) -> list[str]:
    """Collect in the folders of all tables; returns the names of the deleted files."""
    gone: list[str] = []
    looked_at = await folders(lake)
    garbage = {plain: await metadata.garbage_in_folder(lake, *folder) for plain, folder in looked_at.items()}
    again = await folders(lake)
    for plain, found in garbage.items():
        if found.files and again.get(plain) == looked_at[plain]:
            await metadata.remove_garbage(lake, found)
            gone += [file.location.rpartition("/")[2] for file in found.files]
    return gone


async def collect_each(lake: Lake) -> None:
    """Like `collect`, folder by folder: a folder that changes meanwhile does not stop the others."""
    looked_at = await folders(lake)
    for folder in looked_at.values():
        try:
            garbage = await metadata.garbage_in_folder(lake, *folder)
            if garbage.files and folder in (await folders(lake)).values():
                await metadata.remove_garbage(lake, garbage)
        except SandurError:
            continue


async def metadata_files(lake: Lake, name: str) -> list[str]:
    """The names of all metadata files of a table."""
    found = await lake.name(identifier_of(name)).read()
    assert found is not None
    pointer = await lake.pointer(found.value.uuid).read()
    assert pointer is not None
    assert pointer.value.head is not None
    folder = pointer.value.head.metadata_location.rpartition("/")[0]
    prefix = folder.removeprefix(f"{lake.locations.own}/") + "/"
    return [listed.key.removeprefix(prefix) for listed in await lake.store.list(prefix)]
