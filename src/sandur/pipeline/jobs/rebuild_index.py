"""`rebuild-index`: rebuild the list indexes from the records that they list; all of them, or those of one scope."""

import contextlib
from collections.abc import Sequence
from functools import partial
from typing import Final

from pyspark.sql import functions as F  # noqa: N812 - the usual name

from sandur.catalog.identifiers import Namespace
from sandur.catalog.index import CATALOGS, Scope, names_scope, namespaces_scope
from sandur.errors import BadRequest, NotFound, SandurError, Unavailable
from sandur.operations.dry_run import open_dry_run
from sandur.operations.index.rebuild import rebuild_and_merge
from sandur.operations.lake import Lake
from sandur.operations.tables.names import resolve_namespace
from sandur.pipeline.job import Job, JobContext, JobReport
from sandur.pipeline.tasks import Row, map_rows, parallelism
from sandur.storage.contract import list_all

NAME: Final = "rebuild-index"
WARNINGS_MAX: Final = 20
_SCOPES: Final = "collection string, catalog string, levels array<string>"
_REBUILT: Final = "scope string, outcome string, entries long, merged long, problem string"


def run(context: JobContext) -> JobReport:
    """Replace every index of the scope, one by one; a concurrent change is never overwritten."""
    scopes = context.wait(_scopes(context))
    context.check_fence()
    context.progress("rebuild indexes")
    tasks = min(len(scopes), parallelism(context.spark)) or 1
    frame = context.spark.createDataFrame(scopes, _SCOPES).repartition(tasks)
    rebuild = partial(rebuild_scope, is_dry_run=context.dry_run)
    rebuilt = context.persist(map_rows(frame, context.source_options, rebuild, _REBUILT))
    totals = rebuilt.groupBy("outcome").agg(F.count("*"), F.sum("entries"), F.sum("merged")).collect()
    failed = rebuilt.where("outcome = 'failed'").orderBy("scope").limit(WARNINGS_MAX).collect()
    counts = {"lists": len(scopes), "entries": 0, "segments_merged": 0}
    for outcome, times, entries, merged in totals:
        counts[f"lists_{outcome}"] = times
        counts["entries"] += entries
        counts["segments_merged"] += merged
    warnings = [f"index of {row.scope}: {row.problem}" for row in failed]
    return context.report(NAME, counts=counts, warnings=warnings)


async def _scopes(context: JobContext) -> Sequence[Scope]:
    """The scopes of the arguments, or all scopes; raises NotFound for an unknown catalog or namespace."""
    catalog, dotted = context.arguments.get("catalog"), context.arguments.get("namespace")
    if dotted is not None:
        namespace = Namespace(catalog or context.settings.default_catalog, tuple(dotted.split(".")))
        if not all(namespace.levels):
            raise BadRequest(f"namespace {dotted!r}: expected names joined by dots")
        if await resolve_namespace(context.lake, namespace) is None:
            raise NotFound(f"Namespace does not exist: {namespace}", subject="namespace")
        return [names_scope(namespace), namespaces_scope(namespace.catalog, namespace)]
    if catalog is None:
        listed = await list_all(context.lake.store, context.layout.catalogs_folder())
        catalogs, scopes = [context.layout.parse_catalog(one.key) for one in listed], [CATALOGS]
    elif await context.lake.catalog(catalog).read() is None:
        raise NotFound(f"Catalog does not exist: {catalog}", subject="catalog")
    else:
        catalogs, scopes = [catalog], []
    for name in catalogs:
        scopes.append(namespaces_scope(name, None))
        for namespace in await _namespaces(context, name):
            scopes += [names_scope(namespace), namespaces_scope(name, namespace)]
    return scopes


async def _namespaces(context: JobContext, catalog: str) -> Sequence[Namespace]:
    found: list[Namespace] = []
    for listed in await list_all(context.lake.store, context.layout.namespaces_folder(catalog)):
        namespace = context.layout.parse_namespace(listed.key)
        with contextlib.suppress(Unavailable):  # The rebuild of its indexes reports the problem.
            if await resolve_namespace(context.lake, namespace) is None:
                continue
        found.append(namespace)
    return found


async def rebuild_scope(lake: Lake, row: Row, *, is_dry_run: bool) -> tuple[object, ...]:
    """Rebuild one index; returns the scope, the outcome, the counts and the error."""
    scope = Scope(row["collection"], row["catalog"], tuple(row["levels"]))
    name = " ".join((scope.collection, scope.catalog, ".".join(scope.levels))).strip()
    try:
        done = await rebuild_and_merge(open_dry_run(lake) if is_dry_run else lake, scope)
    except SandurError as error:
        return name, "failed", 0, 0, f"{type(error).__name__}: {error}"
    merged = max(0, done.segments_before - done.segments)
    return name, "right" if done.was_right else "corrected", done.entries, merged, ""


REBUILD_INDEX: Final = Job(NAME, "Rebuild the list indexes from the records that they list, and merge segments.", run)
