"""`rebuild-index`: lists are made anew from what they list, by replacement; all of them, or those of one scope."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name that everybody knows

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.errors import BadRequest, NotFound, SandurError, Unavailable
from sandur.operations.dry_run import open_dry_run
from sandur.operations.index.rebuild import rebuild_and_merge
from sandur.operations.tables.names import resolve_namespace
from sandur.pipeline.blocking_lake import open_lake
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.tasks import parts_of
from sandur.storage.contract import list_all

NAME: Final = "rebuild-index"
WARNINGS_MAX: Final = 20
_SEPARATOR: Final = "\x1f"
_SCOPES: Final = "collection string, catalog string, levels string"
_REMADE: Final = "scope string, outcome string, entries long, merged long, problem string"

Batches = Iterable[Any]


def run(context: JobContext) -> JobReport:
    """Every index in question is replaced, each by itself: whoever changes something meanwhile is not overwritten."""
    scopes = context.wait(_scopes(context))
    context.check_fence()
    context.progress("make lists anew", 0, len(scopes))
    remade = _remade(context, scopes).persist()
    try:
        totals = remade.groupBy("outcome").agg(F.count("*"), F.sum("entries"), F.sum("merged")).collect()
        failed = remade.where("outcome = 'failed'").orderBy("scope").limit(WARNINGS_MAX).collect()
    finally:
        remade.unpersist()
    counts = {"lists": len(scopes), "entries": 0, "segments_merged": 0}
    for outcome, times, entries, merged in totals:
        counts[f"lists_{outcome}"] = times
        counts["entries"] += entries
        counts["segments_merged"] += merged
    return JobReport(
        job=NAME,
        run_id=context.run_id,
        dry_run=context.dry_run,
        counts=counts,
        warnings=tuple(f"list of {row.scope}: {row.problem}" for row in failed),
    )


async def _scopes(context: JobContext) -> Sequence[Scope]:
    """The scopes that the arguments name; all of them without any. NotFound for a catalog or namespace that is none."""
    catalog, dotted = context.arguments.get("catalog"), context.arguments.get("namespace")
    if dotted is not None:
        namespace = Namespace(catalog or context.settings.default_catalog, tuple(dotted.split(".")))
        if not all(namespace.levels):
            raise BadRequest(f"namespace {dotted!r}: names joined by . are expected")
        if await resolve_namespace(context.lake, namespace) is None:
            raise NotFound(f"Namespace does not exist: {namespace}", subject="namespace")
        return [names_scope(namespace), namespaces_scope(namespace.catalog, namespace)]
    catalogs = await _catalogs(context) if catalog is None else [catalog]
    if catalog is not None and await context.lake.catalog(catalog).read() is None:
        raise NotFound(f"Catalog does not exist: {catalog}", subject="catalog")
    scopes = [CATALOGS] if catalog is None else []
    for name in catalogs:
        scopes.append(namespaces_scope(name, None))
        for namespace in await _namespaces(context, name):
            scopes += [names_scope(namespace), namespaces_scope(name, namespace)]
    return scopes


async def _catalogs(context: JobContext) -> Sequence[str]:
    listed = await list_all(context.open_store.store, context.layout.catalogs_folder())
    return [context.layout.parse_catalog(one.key) for one in listed]


async def _namespaces(context: JobContext, catalog: str) -> Sequence[Namespace]:
    listed = await list_all(context.open_store.store, context.layout.namespaces_folder(catalog))
    found = [context.layout.parse_namespace(one.key) for one in listed]
    return [namespace for namespace in found if await _may_exist(context, namespace)]


async def _may_exist(context: JobContext, namespace: Namespace) -> bool:
    """Whether a namespace is there, or cannot be read: what its lists need of it is then told list by list."""
    try:
        return await resolve_namespace(context.lake, namespace) is not None
    except Unavailable:
        return True


def _remade(context: JobContext, scopes: Sequence[Scope]) -> DataFrame:
    rows = [(scope.collection, scope.catalog, _SEPARATOR.join(scope.levels)) for scope in scopes]
    tasks = min(len(rows), parts_of(context.spark)) or 1
    frame = context.spark.createDataFrame(rows, _SCOPES).repartition(tasks)
    return frame.mapInArrow(rebuild_task(dict(context.source_options), rehearses=context.dry_run), _REMADE)


def rebuild_task(options: Mapping[str, str], *, rehearses: bool) -> Callable[[Batches], Iterator[Any]]:
    """What each task does with its scopes."""

    def remake_all(batches: Batches) -> Iterator[Any]:
        with open_lake(options) as open_store:
            for batch in batches:
                for row in batch.to_pylist():
                    levels = tuple(row["levels"].split(_SEPARATOR)) if row["levels"] else ()
                    scope = Scope(row["collection"], row["catalog"], levels)
                    lake = open_dry_run(open_store.lake) if rehearses else open_store.lake
                    try:
                        done = open_store.wait(rebuild_and_merge(lake, scope))
                    except SandurError as error:
                        yield _batch(scope, "failed", 0, 0, f"{type(error).__name__}: {error}")
                        continue
                    merged = max(0, done.segments_before - done.segments)
                    yield _batch(scope, "right" if done.was_right else "corrected", done.entries, merged, "")

    return remake_all


def _batch(scope: Scope, outcome: str, entries: int, merged: int, problem: str) -> pa.RecordBatch:
    text = " ".join((scope.collection, scope.catalog, ".".join(scope.levels))).strip()
    columns = [pa.array([value]) for value in (text, outcome, entries, merged, problem)]
    return pa.RecordBatch.from_arrays(columns, names=[field.split()[0] for field in _REMADE.split(", ")])


REBUILD_INDEX: Final = Job(NAME, "Lists are made anew from what they list, and their segments merged.", run)
