"""`import`: find the Iceberg and Delta tables below a location and register them; their files stay in place."""

import contextlib
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.events import Source
from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.locations import checked_location, normalize_location, spellings
from sandur.catalog.records import Request
from sandur.errors import AlreadyExists, BadRequest, Invalid, NotFound, SandurError, Unavailable
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.validation import decode_foreign_table_metadata
from sandur.operations.containers.namespaces import create_namespace
from sandur.operations.delta.log_metadata import columns_of, read_bounded, read_log_metadata
from sandur.operations.delta.tables import NewTable, create_external
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.tables.discovery import identifier_in, metadata_file, table_location
from sandur.operations.tables.names import resolve_name
from sandur.operations.tables.register import register_table
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.sources.catalog import SandurPointers
from sandur.pipeline.sources.range_reader import KeyRange, folder_ranges, gather_bounded, list_range, read_frame
from sandur.pipeline.tasks import map_rows, parallelism, record_batch, run_per_item
from sandur.storage.contract import Listed, ObjectStore, list_all
from sandur.storage.locations import address_of

NAME: Final = "import"
WARNINGS_MAX: Final = 100
_FOUND: Final = ("found_iceberg", "found_delta")
_COUNTED: Final = ("known", "new", "conflicts", "unreadable")
_LIVING: Final = ("unbound", "condemned", "live")
_WANTED: Final = (
    "catalog string, levels array<string>, name string, format string, place string, file string, columns string"
)
_DONE: Final = "name string, outcome string, problem string"

_LISTED: Final = "format string, folder string, file string, number long, modified_ms long"
_INSPECTED: Final = (
    "format string, folder string, file string, place string, uuid string, columns string, problem string"
)


class FoundTable(NamedTuple):
    """A table that was found, and the name that it would get."""

    catalog: str
    levels: tuple[str, ...]
    name: str
    format: str
    place: str
    file: str
    columns: str

    @property
    def identifier(self) -> Identifier:
        return Identifier(self.catalog, tuple(self.levels), self.name)


def run(context: JobContext) -> JobReport:
    """Find tables, compare them with the catalog, and register the new ones; conflicts are reported, never overwritten.

    Arguments: `location` to search; `catalog`; `namespace` for all tables. Without a namespace, the folders above a
    table are its namespace.
    """
    work = _Import(context)
    work.crawl()
    work.compare()
    if not context.dry_run:
        context.check_fence()
        work.register()
    return context.report(NAME, counts=dict(work.counts), warnings=work.warnings[:WARNINGS_MAX])


class _Import:
    def __init__(self, context: JobContext) -> None:
        self._context = context
        self._options = context.source_options
        location = context.arguments.get("location", "")
        self._location = address_of(location) if location else ""  # With a scheme, also for a folder.
        self._catalog = context.arguments.get("catalog") or context.settings.default_catalog
        self._wanted: list[FoundTable] = []
        self.counts: Counter[str] = Counter(dict.fromkeys((*_FOUND, *_COUNTED), 0))
        self.warnings: list[str] = []
        if not self._location:
            raise BadRequest("import: --location is missing; give the location to search for tables")
        roots = tuple(map(normalize_location, context.wait(allowed_roots(context.lake, self._catalog))))
        if normalize_location(self._location) not in roots:
            checked_location(self._location, roots)

    def crawl(self) -> None:
        """Find the tables below the location that are not in the catalog, up to the limit of a run."""
        self._context.progress(f"search for tables below {self._location}")
        newest = newest_files(self._context.spark, self._options, self._location)
        inspect = partial(_inspect_table, self._location)
        found = self._context.persist(map_rows(newest, self._options, inspect, _INSPECTED))
        self._count(found)
        fresh = self._context.persist(self._unknown(found.where("problem is null")))
        new = fresh.count()
        readable = sum(self.counts[name] for name in _FOUND) - self.counts["unreadable"]
        self.counts["known"] = readable - new
        most = self._context.limits.tables_imported_max
        rows = fresh.orderBy("folder", "format").limit(most).collect()
        if new > most:
            self.counts["left_for_later"] = new - most
            self.warnings.insert(
                0, f"{new - most} more tables were found; run the job again, or give a smaller location"
            )
        self._select(rows)

    def _count(self, found: DataFrame) -> None:
        unreadable = F.count("problem").alias("unreadable")
        for row in found.groupBy("format").agg(F.count("*").alias("tables"), unreadable).collect():
            self.counts[f"found_{row.format}"] += row.tables
            self.counts["unreadable"] += row.unreadable
        problems = found.where("problem is not null").orderBy("folder", "format").limit(WARNINGS_MAX).collect()
        self.warnings += [f"{table_location(self._location, row.folder)}: {row.problem}" for row in problems]

    def _unknown(self, found: DataFrame) -> DataFrame:
        """The tables that are not in the catalog: by uuid for Iceberg, by location for Delta."""
        spark = self._context.spark
        pointers = read_frame(spark, SandurPointers(self._options))
        is_known = F.col("state").isin(*_LIVING) | F.col("problem").isNotNull()  # An unreadable pointer may be live.
        uuids = pointers.where(is_known).select(F.lower(F.coalesce("table_uuid", "uuid")).alias("known_uuid"))
        places = spark.createDataFrame([(place,) for place in self._context.wait(self._delta_places())], "place string")
        by_uuid = F.lower(found.uuid) == uuids.known_uuid
        return found.join(uuids, on=by_uuid, how="left_anti").join(places, on="place", how="left_anti")

    def _select(self, rows: Sequence[Row]) -> None:
        places: dict[str, str] = {}
        for row in rows:
            place = table_location(self._location, row.folder)
            first = places.setdefault(row.uuid.lower(), place) if row.format == "iceberg" and row.uuid else place
            if first != place:  # A second run would find its uuid in the catalog.
                self._warn("conflicts", f"{place}: has the same uuid {row.uuid} as {first}")
                continue
            try:
                identifier = checked_identifier(self._name_of(row.folder))
            except Invalid as error:
                self._warn("unreadable", f"{place}: {error}")
                continue
            self._wanted.append(FoundTable(*identifier, row.format, place, row.file, row.columns or ""))

    def compare(self) -> None:
        """Report conflicts: two tables with one name, or a name that exists."""
        self._context.progress("compare with the catalog")
        times = Counter(one.identifier for one in self._wanted)
        wanted, self._wanted = self._wanted, []
        for one in wanted:
            if times[one.identifier] > 1:
                self._warn(
                    "conflicts", f"{one.place}: {times[one.identifier]} tables would get the name {one.identifier}"
                )
            elif taken := self._context.wait(self._conflict(one.identifier)):
                self._warn("conflicts", f"{one.place}: {taken}")
            else:
                self._wanted.append(one)
        self.counts["new"] = len(self._wanted)

    def register(self) -> None:
        """Register the tables, in executors; a name that was taken in the meantime is a conflict."""
        self.counts["registered"] = 0
        if not self._wanted:
            return
        self._context.progress("register tables")
        self._context.wait(self._make_namespaces({one.identifier.namespace for one in self._wanted}))
        tasks = min(len(self._wanted), parallelism(self._context.spark))
        frame = self._context.spark.createDataFrame(self._wanted, _WANTED).repartition(tasks)
        register = partial(register_row, self._context.run_id)
        for row in map_rows(frame, self._options, register, _DONE).collect():
            self.counts[row.outcome] += 1
            if row.problem:
                self.warnings.append(f"{row.name}: {row.problem}")

    def _name_of(self, folder: str) -> Identifier:
        """The name for the table in a folder."""
        given = self._context.arguments.get("namespace")
        return identifier_in(self._catalog, self._location, folder, given.split(".") if given else ())

    async def _conflict(self, identifier: Identifier) -> str:
        """Why a name is not available; empty if it is."""
        try:
            return f"{identifier} exists" if await resolve_name(self._context.lake, identifier) else ""
        except Unavailable as error:  # A damaged record may be that of a live table.
            return str(error)

    async def _delta_places(self) -> set[str]:
        """Raises Unavailable for a damaged record, because it may have any location."""
        lake = self._context.lake

        async def place(listed: Listed) -> str:
            held = await lake.delta_table(lake.layout.parse_delta_table(listed.key)).read()
            is_known = held is not None and held.value.state in _LIVING and held.value.location
            return normalize_location(held.value.location) if held and is_known else ""

        return {*await gather_bounded(await list_all(lake.store, lake.layout.delta_tables_folder()), place)} - {""}

    async def _make_namespaces(self, namespaces: Iterable[Namespace]) -> None:
        for namespace in sorted(namespaces):
            for depth in range(1, len(namespace.levels) + 1):
                above = Namespace(namespace.catalog, namespace.levels[:depth])
                request = _request(f"import namespace {above}", self._context.run_id)
                with contextlib.suppress(AlreadyExists):
                    await create_namespace(self._context.lake, above, {}, request)

    def _warn(self, outcome: str, warning: str) -> None:
        self.counts[outcome] += 1
        self.warnings.append(warning)


async def register_row(run_id: str, lake: Lake, row: Mapping[str, Any]) -> tuple[object, ...]:
    """Register a table; returns its name, the outcome (`registered`, `conflicts` or `unreadable`) and the error."""
    table = FoundTable(**row)
    identifier = table.identifier
    request = _request(f"import {identifier} {table.place}", run_id)
    try:
        if table.format == "iceberg":
            location = await _own_spelling(lake, f"{table.place}/metadata/{table.file}")
            await register_table(lake, identifier.namespace, identifier.name, location, request=request)
        else:
            columns = msgspec.Raw(table.columns.encode())
            wanted = NewTable(identifier=identifier, table_type="EXTERNAL", location=table.place, columns=columns)
            await create_external(lake, wanted, request=request)
    except AlreadyExists as error:
        return str(identifier), "conflicts", str(error)
    except SandurError as error:
        return str(identifier), "unreadable", f"{type(error).__name__}: {error}"
    return str(identifier), "registered", None


def _request(what: str, run_id: str) -> Request:
    source = Source(kind="pipeline", client="sandur", run_id=run_id, task_id=NAME)
    return Request(hash=hashlib.sha256(what.encode()).hexdigest(), source=source)


def newest_files(spark: SparkSession, options: Mapping[str, str], location: str) -> DataFrame:
    """The format and the newest metadata file of every folder below the location that looks like a table."""
    with open_lake(options) as blocking:
        store, prefix = _store_at(blocking.lake, location)
        ranges = blocking.wait(folder_ranges(store, prefix))

    def list_metadata(keys: KeyRange) -> Iterator[Any]:
        with open_lake(options) as blocking:
            store, prefix = _store_at(blocking.lake, location)
            for page in blocking.iterate(list_range(store, keys)):
                rows = (metadata_file(one.key.removeprefix(prefix), one.modified_ms) for one in page)
                yield record_batch(_LISTED, [row for row in rows if row])

    everything = run_per_item(spark, ranges, list_metadata, _LISTED)
    newest = F.max_by("file", F.struct("number", "modified_ms", "file")).alias("file")
    return everything.groupBy("format", "folder").agg(newest)


def _store_at(lake: Lake, location: str) -> tuple[ObjectStore, str]:
    """The store of a location, and the location's prefix in it."""
    store, key = lake.locations.holder(f"{location.rstrip('/')}/x")
    return store, key.removesuffix("x")


async def _inspect_table(location: str, lake: Lake, row: Mapping[str, Any]) -> tuple[object, ...]:
    """The uuid or the columns in the table's newest file, or the problem; `place` is its normalized location."""
    place = table_location(location, row["folder"])
    known = row["format"], row["folder"], row["file"], normalize_location(place)
    inspect = _inspect_iceberg if row["format"] == "iceberg" else _inspect_delta
    try:
        return (*known, *await inspect(lake, place, row["file"]), None)
    except SandurError as error:
        return (*known, None, None, str(error))


async def _inspect_iceberg(lake: Lake, place: str, file: str) -> tuple[str | None, str | None]:
    return (await _read_metadata(lake, f"{place}/metadata/{file}")).table_uuid, None


async def _own_spelling(lake: Lake, location: str) -> str:
    """The location of a metadata file as the table spells it: some clients compare it with the table's location."""
    table = (await _read_metadata(lake, location)).location
    return next((text for text in spellings(location) if text.startswith(f"{table}/")), location)


async def _read_metadata(lake: Lake, location: str) -> TableMetadata:
    data = await read_bounded(lake, location)
    if data is None:
        raise NotFound(f"file {location} does not exist", subject="file")
    return decode_foreign_table_metadata(data, metadata_location=location)


async def _inspect_delta(lake: Lake, place: str, file: str) -> tuple[str | None, str | None]:
    metadata = await read_log_metadata(lake, place, int(file[:20]))
    return metadata.id, bytes(columns_of(metadata)).decode()


IMPORT: Final = Job(NAME, "Register the tables below a location; their files stay in place.", run)
