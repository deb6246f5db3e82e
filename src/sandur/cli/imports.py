"""`sandur import`: copy the definitions of another catalog, or the tables of a folder, into a catalog.

The files of tables stay where they are. Nothing is changed at the source. A plan comes first. A second run does only
what is missing, so an import that was interrupted continues.
"""

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace
from rich.console import Console
from rich.progress import Progress, TextColumn, TimeElapsedColumn

from sandur.catalog.identifiers import parse_path, path_text
from sandur.catalog.locations import is_within, normalize_location
from sandur.cli.definitions import Definition, create, definition_of, without_ids
from sandur.cli.flags import TargetFlags
from sandur.cli.output import confirm, print_records, say
from sandur.cli.store_admin import StoreFlags
from sandur.cli.targets import run_on_target
from sandur.client.catalog import CatalogClient, Json, Name
from sandur.client.profiles import user_profiles
from sandur.client.sources import Entry, RestSource, Source, SourceLogin, SourceObject, UnitySource, source_session
from sandur.clock import Clock, SystemClock
from sandur.errors import BadRequest, Conflict, Forbidden, Invalid, NotFound, Unsupported
from sandur.iceberg.validation import decode_foreign_table_metadata
from sandur.operations.tables.discovery import (
    MetadataFile,
    identifier_in,
    newest_metadata_files,
    table_location,
)
from sandur.storage.contract import Listed, ObjectStore, Version, list_pages, portions
from sandur.storage.locations import address_of, connect

_AT_ONCE: Final = 8
_BOTH_CHANGED: Final = "it was changed here and at the source since the import"
_DONE: Final = ("create", "register", "update")
_PROBLEMS: Final = ("conflict", "failed")
_EXPECTED: Final = (BadRequest, Conflict, Forbidden, Invalid, NotFound, Unsupported)
"""Errors of one object. Any other error ends the run; the next run continues."""

T = TypeVar("T")
R = TypeVar("R")


class ImportOptions(NamedTuple):
    """Where to import to, and how. `updates` moves tables forward that changed at the source since the last import."""

    into: str
    updates: bool = False
    is_dry: bool = False
    is_confirmed: bool = False


class Step(NamedTuple):
    """What is done with one object, or why nothing is. `location` is that of a table."""

    action: str
    found: SourceObject
    name: Name
    detail: str = ""

    def row(self) -> Json:
        return {
            "action": self.action,
            "kind": self.found.kind,
            "name": path_text(self.name.parts),
            "detail": self.detail,
            "location": self.found.metadata_location or self.found.location,
        }


def import_rest(
    url: str,
    options: ImportOptions,
    flags: TargetFlags,
    *,
    warehouse: str,
    namespaces: Sequence[str],
    login: SourceLogin,
) -> None:
    """Import an Iceberg REST catalog."""
    only = [parse_path(one) for one in namespaces]

    @contextlib.asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Source]:
        async with source_session(url, login, user_profiles(os.environ), clock) as session:
            yield RestSource(session, warehouse, only)

    run_import(opened, options, flags)


def import_unity(
    url: str, options: ImportOptions, flags: TargetFlags, *, catalog: str, schemas: Sequence[str], login: SourceLogin
) -> None:
    """Import a catalog of a Unity Catalog server."""
    only = [parse_path(one) for one in schemas]

    @contextlib.asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Source]:
        async with source_session(url, login, user_profiles(os.environ), clock) as session:
            yield UnitySource(session, catalog, only)

    run_import(opened, options, flags)


def import_folder(url: str, options: ImportOptions, flags: TargetFlags, *, namespace: str | None) -> None:
    """Import the tables below a folder or a prefix of a bucket, by their files."""
    settings = StoreFlags(flags.store, flags.config).settings()
    levels = parse_path(namespace) if namespace else ()

    @contextlib.asynccontextmanager
    async def opened(clock: Clock) -> AsyncIterator[Source]:
        address = address_of(url)
        if urlsplit(address).scheme == "file":
            yield FolderSource(address, _LocalFolder(Path(unquote(urlsplit(address).path))), levels)
            return
        store = connect(settings, clock, address)
        try:
            yield FolderSource(address, _Bucket(store), levels)
        finally:
            await store.close()

    run_import(opened, options, flags)


class _Files(Protocol):
    """Files below a location, by their paths relative to it."""

    def pages(self) -> AsyncIterator[Iterable[Listed]]: ...

    async def read(self, path: str) -> bytes | None: ...


class _Bucket:
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def pages(self) -> AsyncIterator[Iterable[Listed]]:
        return list_pages(self._store, "")

    async def read(self, path: str) -> bytes | None:
        found = await self._store.get(path)
        return found.data if found else None


class _LocalFolder:
    """A folder of this machine, which is only read. Opened as a store, it would get the files of a store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def pages(self) -> AsyncIterator[Iterable[Listed]]:
        for page in await asyncio.to_thread(lambda: list(self._walk())):
            yield page

    async def read(self, path: str) -> bytes | None:
        return await asyncio.to_thread((self._folder / path).read_bytes)

    def _walk(self) -> Iterator[Iterable[Listed]]:
        if not self._folder.is_dir():
            raise NotFound(f"folder {self._folder} does not exist", subject="object")
        for above, folders, files in os.walk(self._folder):
            if inner := {"metadata", "_delta_log"} & set(folders):
                folders[:] = sorted(inner)  # A table: nothing else in it is a table.
            if Path(above).name in {"metadata", "_delta_log"}:
                paths = [Path(above, name) for name in files]
                yield [
                    Listed(path.relative_to(self._folder).as_posix(), Version(""), 0, path.stat().st_mtime_ns // 10**6)
                    for path in paths
                ]


class FolderSource:
    """The tables below a location, such as the warehouse of a Hadoop catalog."""

    def __init__(self, location: str, files: _Files, namespace: tuple[str, ...]) -> None:
        self._location = location
        self._files = files
        self._namespace = namespace

    async def entries(self) -> AsyncIterator[Entry]:
        found = await newest_metadata_files(self._files.pages(), "")
        names = [(identifier_in("", self._location, one.folder, self._namespace), one) for one in found]
        containers = {name.levels[:depth] for name, _ in names for depth in range(1, len(name.levels) + 1)}
        for levels in sorted(containers):
            yield Entry("namespace", levels)
        times = Counter((*name.levels, name.name) for name, _ in names)
        for name, one in names:
            parts = (*name.levels, name.name)
            yield Entry("table", parts, {"file": one, "times": times[parts]})

    async def load(self, entry: Entry) -> SourceObject:
        if entry.kind == "namespace":
            return SourceObject(kind="namespace", name=entry.name)
        file: MetadataFile = entry.content["file"]
        place = table_location(self._location, file.folder)
        found = SourceObject(kind="table", name=entry.name, format=file.format, location=place)
        if entry.content["times"] > 1:
            return replace(found, problem=f"{entry.content['times']} tables would get this name")
        if file.format == "delta":
            return found
        path = f"{file.folder}/metadata/{file.file}".lstrip("/")
        data = await self._files.read(path)
        if data is None:
            raise NotFound(f"file {path} does not exist", subject="object")
        location = f"{place}/metadata/{file.file}"
        metadata = decode_foreign_table_metadata(data, metadata_location=location)
        own = metadata.location.rstrip("/")
        if normalize_location(own) != normalize_location(place):
            return replace(found, problem=f"a copy: its metadata says that the table lies at {own}")
        return replace(
            found,
            location=own,
            # As the table writes its location: some clients compare the two.
            metadata_location=f"{own}/metadata/{file.file}",
            uuid=metadata.table_uuid or "",
            earlier=frozenset(one.metadata_file for one in metadata.metadata_log),
        )


Opened = Callable[[Clock], contextlib.AbstractAsyncContextManager[Source]]


def run_import(opened: Opened, options: ImportOptions, flags: TargetFlags) -> None:
    """Plan, ask, carry out, and print what was done. Raises Conflict at the end if an object was not imported."""
    into = Name(parse_path(options.into))
    if len(into.parts) != 1:
        raise BadRequest(f"--into {options.into}: expected the name of a catalog")

    async def run(client: CatalogClient) -> tuple[list[Step], str]:
        async with opened(SystemClock()) as source:
            with _progress("planning") as show:
                root, steps = await plan(client, source, into, updates=options.updates, show=show)
        to_do = [step for step in steps if step.action in _DONE]
        if options.is_dry or not to_do:
            return steps, root
        if not options.is_confirmed:
            say("\n".join("  ".join(str(one) for one in step.row().values() if one) for step in to_do))
        confirm(f"Make {len(to_do)} changes in catalog {options.into}?", is_confirmed=options.is_confirmed)
        with _progress("importing") as show:
            return await carry_out(client, steps, show), root

    steps, root = run_on_target(run, flags, access="read" if options.is_dry else "change")
    columns = ("action", "kind", "name", "detail", "location")
    print_records([step.row() for step in steps], columns, flags.output, empty="The source is empty.")
    counts = Counter(step.action for step in steps)
    say(("Plan: " if options.is_dry else "") + ", ".join(f"{count} {action}" for action, count in counts.items()))
    _report(steps, root, is_dry=options.is_dry)


def _report(steps: Sequence[Step], root: str, *, is_dry: bool) -> None:
    problems = [step for step in steps if step.action in _PROBLEMS]
    checked = [step for step in steps if step.action in _DONE] if is_dry else problems
    hint = location_hint([step.found.location for step in checked if step.found.location], root)
    if is_dry and hint:
        say(f"Some tables lie outside the root of the catalog: {hint}")
    if problems:
        first = problems[0]
        text = f"{len(problems)} objects were not imported, such as {path_text(first.name.parts)}: {first.detail}"
        raise Conflict(f"{text}. If their location is the reason: {hint}" if hint and not is_dry else text)


def location_hint(locations: Iterable[str], root: str) -> str:
    """What to allow, so that tables outside the root of the catalog can be registered; empty if all are inside."""
    plain = [normalize_location(one) for one in locations]
    outside = [one for one in plain if not (root and is_within(one, normalize_location(root)))]
    if not outside:
        return ""
    folders: dict[str, list[str]] = {}
    for one in outside:
        scheme, _, path = one.partition("://")
        bucket, _, key = path.partition("/")
        folders.setdefault(f"{scheme}://{bucket}", []).append(f"/{key}".rpartition("/")[0] or "/")
    flags = [f"--allow-location {bucket}{os.path.commonpath(keys).rstrip('/')}" for bucket, keys in folders.items()]
    return f"start the server with {' '.join(flags)}, or set allowed_locations; with --store, pass it to this command"


async def plan(
    client: CatalogClient, source: Source, into: Name, *, updates: bool, show: Callable[[int], None]
) -> tuple[str, list[Step]]:
    """The root of the catalog (empty if it does not exist) and one step for every object of the source."""
    steps: list[Step] = []
    try:
        root = (await client.describe(into)).get("location", "")
    except NotFound:
        root = ""
        steps.append(Step("create", SourceObject(kind="namespace", name=()), into, "the catalog"))
    is_new = bool(steps)

    async def step_of(entry: Entry) -> Step | None:
        name = Name((*into.parts, *entry.name))
        try:
            found = await source.load(entry)
        except NotFound:
            return None  # It was dropped meanwhile.
        except _EXPECTED as error:
            return Step("failed", SourceObject(kind=entry.kind, name=entry.name), name, str(error))
        try:
            return await plan_object(client, name, found, updates=updates, is_new=is_new)
        except _EXPECTED as error:
            return Step("failed", _kept(found), name, str(error))

    entries = [entry async for entry in source.entries()]
    for portion in portions(entries, _AT_ONCE * 4):
        steps += [step for step in await _each(step_of, portion) if step]
        show(len(steps))
    return root, steps


async def plan_object(client: CatalogClient, name: Name, found: SourceObject, *, updates: bool, is_new: bool) -> Step:
    """What to do with one object. An object that the catalog has is never replaced, except to follow the source."""
    kept = _kept(found)
    if found.problem:
        return Step("skipped", kept, name, found.problem)
    creation = Step("register" if found.kind == "table" else "create", kept, name)
    if is_new:
        return creation
    try:
        current = await client.describe(name)
    except NotFound:
        return creation
    if current["kind"] != found.kind or (found.kind == "table" and current.get("format", "") != found.format):
        taken = f"the name is that of a {current.get('format', '')} {current['kind']}".replace("  ", " ")
        return Step("conflict", kept, name, taken)
    if found.kind == "table" and found.format == "iceberg":
        return await _compare(client, kept, name, found.earlier, updates=updates)
    is_same = await _is_same(client, name, found, current)
    problem = "" if is_same else f"another {found.kind} has this name, or it was changed"
    return Step("conflict" if problem else "same", kept, name, problem)


async def _compare(
    client: CatalogClient, found: SourceObject, name: Name, earlier: frozenset[str], *, updates: bool
) -> Step:
    step = compared(found, name, earlier, await client.load_table_answer(name), updates=updates)
    # Logs are short, and Nessie keeps none. A table whose newest version is its registration was not changed here.
    if step.detail == _BOTH_CHANGED and (await client.history(name, 1))[0].get("operation") == "register":
        return _behind(found, name, updates=updates)
    return step


async def _is_same(client: CatalogClient, name: Name, found: SourceObject, current: Json) -> bool:
    """Whether an object other than an Iceberg table is as the source has it. Properties of a namespace may differ."""
    match found.kind:
        case "namespace":
            return True
        case "table":
            return _plain(current.get("location", "")) == _plain(found.location)
        case _:
            content = (await definition_of(client, name)).content
            return bool(without_ids({**content, **found.content}) == without_ids(content))


def compared(found: SourceObject, name: Name, earlier: frozenset[str], here: Json, *, updates: bool) -> Step:
    """The step for an Iceberg table whose name exists: which side has newer versions is in the logs of both."""
    metadata, location = here["metadata"], here.get("metadata-location", "")
    if metadata["table-uuid"] != found.uuid:
        return Step("conflict", found, name, f"another table has this name, with uuid {metadata['table-uuid']}")
    if _plain(location) == _plain(found.metadata_location):
        return Step("same", found, name)
    if _plain(location) in {_plain(one) for one in earlier}:
        return _behind(found, name, updates=updates)
    logged = {_plain(one["metadata-file"]) for one in metadata.get("metadata-log", ())}
    if _plain(found.metadata_location) in logged:
        return Step("ahead", found, name, "it was changed here since the import")
    return Step("conflict", found, name, _BOTH_CHANGED)


def _behind(found: SourceObject, name: Name, *, updates: bool) -> Step:
    if updates:
        return Step("update", found, name)
    return Step("behind", found, name, "the source has newer versions; pass --update")


def _plain(location: str) -> str:
    return normalize_location(location) if location else ""


def _kept(found: SourceObject) -> SourceObject:
    """The object without what only the plan needs."""
    return replace(found, earlier=frozenset())


async def carry_out(client: CatalogClient, steps: Sequence[Step], show: Callable[[int], None]) -> list[Step]:
    """The steps with their outcome. Containers come first, in their order; objects at the same time."""

    async def run(step: Step) -> Step:
        if step.action not in _DONE:
            return step
        try:
            await apply_step(client, step)
        except _EXPECTED as error:
            return step._replace(action="failed", detail=str(error))
        return step

    containers = [step for step in steps if step.found.kind == "namespace"]
    others = [step for step in steps if step.found.kind != "namespace"]
    done = [await run(step) for step in containers]
    for portion in portions(others, _AT_ONCE * 4):
        done += await _each(run, portion)
        show(len(done))
    return done


async def apply_step(client: CatalogClient, step: Step) -> None:
    found, name = step.found, step.name
    match found.kind, found.format:
        case "namespace", _ if len(name.parts) == 1:
            await client.create_catalog(name, root=None, comment=None, properties={})
        case "table", "iceberg":
            await client.register(name, found.metadata_location, overwrite=step.action == "update")
        case "table", "delta":
            comment = found.comment or None
            await client.define_table(name, {"format": "delta", "location": found.location, "comment": comment})
        case "table", _:
            await client.create_unity_table(name, found.content)
        case _:
            await create(client, name, _definition(found, name))


def _definition(found: SourceObject, name: Name) -> Definition:
    return Definition(
        name=name.parts,
        kind=found.kind,
        format=found.format,
        comment=found.comment,
        properties=found.properties,
        content=found.content,
    )


async def _each(work: Callable[[T], Awaitable[R]], items: Sequence[T]) -> list[R]:
    """The results in the order of the items; a bounded number of them is worked on at the same time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: T) -> R:
        async with slots:
            return await work(item)

    return list(await asyncio.gather(*(one(item) for item in items)))


@contextlib.contextmanager
def _progress(what: str) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(what, total=None)
        yield lambda count: bars.update(task, description=f"{what}: {count:,} objects")
