"""OpenLineage events: which ones are accepted, what each says about its run, and the fold of all events of a run.

The fold is a merge of facts. Each fact has an order, and of two facts with one key the later one is kept (the earlier
one for keys that begin with `<`). So events in any order, in any division and with any copies give the same facts.
"""

import datetime as dt
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from sandur.errors import BadRequest
from sandur.splicing import NOT_JSON

EVENT_BYTES_MAX: Final = 8 << 20
EVENTS_PER_REQUEST_MAX: Final = 1_000
DATASETS_PER_EVENT_MAX: Final = 2_000
FACTS_PER_RUN_MAX: Final = 20_000
"""A run with more facts keeps those with the smallest keys, whatever the order of its events."""
COLUMNS_PER_DATASET_MAX: Final = 10_000
NAME_CHARS_MAX: Final = 2_048

_MESSAGE_CHARS_MAX: Final = 1_000
_LINKS_MAX: Final = 16
_LAST_MS: Final = 253_402_300_799_999
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")
_RANKS: Final = {"START": 1, "RUNNING": 2, "OTHER": 3, "COMPLETE": 4, "ABORT": 5, "FAIL": 6}
_ENDS: Final = frozenset({"COMPLETE", "ABORT", "FAIL"})
_NO_FACETS: Final[dict[str, msgspec.Raw]] = {}
SEPARATOR: Final = "\x00"
_OWN_COMMIT: Final = "\x00commit"


class _Run(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str
    facets: dict[str, msgspec.Raw] | None = None


class _Job(msgspec.Struct, frozen=True):
    namespace: str
    name: str


class _Dataset(msgspec.Struct, frozen=True, rename="camel"):
    namespace: str
    name: str
    facets: dict[str, msgspec.Raw] | None = None
    output_facets: dict[str, msgspec.Raw] | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    event_time: str
    producer: str
    schema_url: str = msgspec.field(name="schemaURL")
    event_type: str | None = None
    run: _Run | None = None
    job: _Job | None = None
    dataset: _Dataset | None = None
    inputs: tuple[_Dataset, ...] | None = None
    outputs: tuple[_Dataset, ...] | None = None


class LineageRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event as it is stored: the bytes that the client sent, and what the server knew about the client.

    `id` is the hash of the principal and the event, so an event that is sent again is the same record. `host` is the
    address that the client used for this server. `is_trusted`: an administrator trusts the principal with the sources
    that it declares, or nothing is checked. `is_own`: the pipeline itself wrote it about one of its runs.
    """

    id: str
    received_ms: int
    principal: str = ""
    principal_id: str = ""
    host: str = ""
    is_trusted: bool = False
    is_own: bool = False
    event: msgspec.Raw


def record_id(principal_id: str, event: bytes) -> str:
    return hashlib.sha256(principal_id.encode() + b"\n" + event).hexdigest()


_decoder: Final = msgspec.json.Decoder(_Event)


def check_event(event: bytes) -> None:
    """Raise BadRequest unless the bytes are a RunEvent, a JobEvent or a DatasetEvent."""
    _decoded(event)


def _decoded(data: bytes | msgspec.Raw) -> _Event:
    try:
        event = _decoder.decode(data)
    except NOT_JSON as error:
        raise BadRequest(f"Invalid OpenLineage event: {error}") from None
    if problem := _problem(event):
        raise BadRequest(f"Invalid OpenLineage event: {problem}")
    _time_ms(event.event_time)
    return event


def _problem(event: _Event) -> str | None:
    """What is wrong with the frame of an event; None if nothing is."""
    if event.run is None and event.job is None and event.dataset is None:
        return "it has neither a run, nor a job, nor a dataset"
    if event.run and event.job is None:
        return "the job of the run is missing"
    if event.run and not _UUID.match(event.run.run_id):
        return f"runId {event.run.run_id[:40]!r} is not a UUID"
    if event.event_type is not None and event.event_type not in _RANKS:
        return f"eventType {event.event_type[:40]!r}, expected one of {', '.join(_RANKS)}"
    return _dataset_problem(event)


def _dataset_problem(event: _Event) -> str | None:
    datasets = (*(event.inputs or ()), *(event.outputs or ()), *((event.dataset,) if event.dataset else ()))
    if len(datasets) > DATASETS_PER_EVENT_MAX:
        return f"{len(datasets)} datasets, at most {DATASETS_PER_EVENT_MAX} are allowed"
    named: tuple[_Dataset | _Job, ...] = (*datasets, *((event.job,) if event.job else ()))
    if not all(map(_is_named, named)):
        return f"a namespace or name of a job or dataset is empty, or they have more than {NAME_CHARS_MAX} characters"
    return None


def _is_named(one: _Dataset | _Job) -> bool:
    return bool(one.name and one.namespace) and len(one.name) + len(one.namespace) <= NAME_CHARS_MAX


def _time_ms(text: str) -> int:
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise BadRequest(f"Invalid OpenLineage event: eventTime {text[:40]!r} is not a time in ISO 8601") from None
    zoned = moment if moment.tzinfo else moment.replace(tzinfo=dt.UTC)
    return min(max(round(zoned.timestamp() * 1_000), 0), _LAST_MS)


Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Facts = dict[str, tuple[str, Json]]
"""What is known about a run: for each key the order of the fact, and its value."""


def merge_facts(parts: Iterable[Facts]) -> Facts:
    """The facts of all parts. The result does not depend on the order of the parts, nor on copies."""
    merged: Facts = {}
    for part in parts:
        for key, fact in part.items():
            known = merged.get(key)
            if known is None or (fact[0] < known[0] if key.startswith("<") else fact[0] > known[0]):
                merged[key] = fact
    if len(merged) > FACTS_PER_RUN_MAX:
        merged = {key: merged[key] for key in sorted(merged)[:FACTS_PER_RUN_MAX]}
    return merged


def facts_of(record: LineageRecord) -> tuple[str, Facts]:
    """The key of the run that an event belongs to, and the facts that it states. Raises BadRequest.

    Events of two principals never belong to the same run: no principal adds to the lineage that another sent. Without
    a run, all events about a job, or about a dataset, count as one.
    """
    event = _decoded(record.event)
    time_ms, kind = _time_ms(event.event_time), event.event_type or "OTHER"
    order = f"{time_ms:015d}{_RANKS[kind]}{record.id[:16]}"
    run_id = event.run.run_id.lower() if event.run else ""
    about = _identity(event, run_id)
    sender: Json = [record.principal, record.principal_id, record.host, record.is_trusted, record.is_own]
    facts: Facts = {
        "run": ("", run_id),
        "sender": (order, sender),
        "<start": (order, time_ms),
        "last": (order, time_ms),
    }
    if event.job:
        facts["job"] = (order, [event.job.namespace, event.job.name])
    if event.run:
        facts["end" if kind in _ENDS else "state"] = (order, kind)
        _add_run_facets(facts, order, event.run.facets or _NO_FACETS)
    _add_datasets(facts, order, event, is_complete=kind == "COMPLETE")
    if not record.is_own:
        facts = {key: fact for key, fact in facts.items() if not key.endswith(_OWN_COMMIT)}
    sent_by = "own" if record.is_own else f"principal {record.principal_id}"
    return hashlib.sha256(SEPARATOR.join((sent_by, *about)).encode()).hexdigest(), facts


def _add_datasets(facts: Facts, order: str, event: _Event, *, is_complete: bool) -> None:
    for dataset in event.inputs or ():
        _add_dataset(facts, order, "i", dataset, has_version=True)
    # Before the end, Spark names the version that the statement found.
    for dataset in event.outputs or ():
        _add_dataset(facts, order, "o", dataset, has_version=is_complete)
    if event.dataset:
        _add_dataset(facts, order, "o", event.dataset, has_version=False)


def _identity(event: _Event, run_id: str) -> Sequence[str]:
    if run_id:
        return ("run", run_id)
    if event.dataset:
        return ("dataset", event.dataset.namespace, event.dataset.name)
    return ("job", event.job.namespace, event.job.name) if event.job else ("job",)


class _ParentRun(msgspec.Struct, frozen=True, rename="camel"):
    run_id: str


class _Parent(msgspec.Struct, frozen=True):
    run: _ParentRun
    job: _Job


class _Error(msgspec.Struct, frozen=True):
    message: str


class _Engine(msgspec.Struct, frozen=True):
    version: str = ""
    name: str = ""


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    dataset_version: str


class _Symlinks(msgspec.Struct, frozen=True):
    identifiers: tuple[_Job, ...] = ()


class _Catalog(msgspec.Struct, frozen=True, rename="camel"):
    warehouse_uri: str | None = None


class _Statistics(msgspec.Struct, frozen=True, rename="camel"):
    row_count: int | None = None
    size: int | None = None


class _Transformation(msgspec.Struct, frozen=True):
    type: str
    subtype: str | None = None
    masking: bool | None = None


class _InputField(msgspec.Struct, frozen=True):
    namespace: str
    name: str
    field: str
    transformations: tuple[_Transformation, ...] | None = None


_UNKNOWN: Final = _Transformation("")


class _OutputField(msgspec.Struct, frozen=True, rename="camel"):
    input_fields: tuple[_InputField, ...] = ()


class _ColumnLineage(msgspec.Struct, frozen=True):
    fields: dict[str, _OutputField] = {}
    dataset: tuple[_InputField, ...] | None = None


class _OwnCommit(msgspec.Struct, frozen=True, rename="camel"):
    table_uuid: str
    commit_key: str


class _Facet(msgspec.Struct, frozen=True):
    is_deleted: bool | None = msgspec.field(default=None, name="_deleted")


F = TypeVar("F", bound=msgspec.Struct)


def _add_run_facets(facts: Facts, order: str, facets: Mapping[str, msgspec.Raw]) -> None:
    if "parent" in facets:
        parent = _facet(facets["parent"], _Parent)
        facts["parent"] = (
            order,
            [parent.run.run_id.lower(), parent.job.namespace, parent.job.name] if parent else None,
        )
    if "errorMessage" in facets:
        error = _facet(facets["errorMessage"], _Error)
        facts["error"] = (order, error.message[:_MESSAGE_CHARS_MAX] if error else None)
    if "processing_engine" in facets:
        engine = _facet(facets["processing_engine"], _Engine)
        facts["engine"] = (order, f"{engine.name} {engine.version}".strip()[:NAME_CHARS_MAX] if engine else None)


def _add_dataset(facts: Facts, order: str, role: str, dataset: _Dataset, *, has_version: bool) -> None:
    facets = {**(dataset.facets or _NO_FACETS), **(dataset.output_facets or _NO_FACETS)}

    def key(fact: str) -> str:
        return SEPARATOR.join((role, dataset.namespace, dataset.name, fact))

    facts[key("")] = ("", None)
    if "version" in facets and has_version:
        version = _facet(facets["version"], _Version)
        # What was read is the version at the start: at its end, Spark names the version that the statement made.
        name = key("version") if role == "o" else "<" + key("version")
        facts[name] = (order, version.dataset_version[:NAME_CHARS_MAX] if version else None)
    if "symlinks" in facets:
        links = _facet(facets["symlinks"], _Symlinks)
        names: Json = [[one.namespace, one.name] for one in links.identifiers[:_LINKS_MAX]] if links else None
        facts[key("links")] = (order, names)
    if "catalog" in facets:
        catalog = _facet(facets["catalog"], _Catalog)
        facts[key("warehouse")] = (order, catalog.warehouse_uri if catalog else None)
    if role == "o":
        _add_output(facts, order, key(""), facets)


def _add_output(facts: Facts, order: str, prefix: str, facets: Mapping[str, msgspec.Raw]) -> None:
    """What is known only of outputs; `prefix` is the beginning of their keys."""
    if "columnLineage" in facets:
        columns = _facet(facets["columnLineage"], _ColumnLineage)
        facts[f"{prefix}columns"] = (order, _column_rows(columns) if columns else None)
    if "outputStatistics" in facets:
        counted = _facet(facets["outputStatistics"], _Statistics)
        facts[f"{prefix}statistics"] = (order, [counted.row_count, counted.size] if counted else None)
    if "sandur_commit" in facets:
        own = _facet(facets["sandur_commit"], _OwnCommit)
        facts[f"{prefix}commit"] = (order, [own.table_uuid, own.commit_key] if own else None)


def _facet(raw: msgspec.Raw, wanted: type[F]) -> F | None:
    """The facet; None if it says that it is deleted, or has a shape that the specification does not allow."""
    try:
        if msgspec.json.decode(raw, type=_Facet).is_deleted:
            return None
        return msgspec.json.decode(raw, type=wanted)
    except (msgspec.DecodeError, RecursionError):
        return None


def _column_rows(lineage: _ColumnLineage) -> Json:
    """Rows of: output column, namespace, name and column of the input, type, subtype, masking.

    What touches all rows, such as a filter, has an empty output column.
    """
    every = [("", lineage.dataset or ()), *((name, field.input_fields) for name, field in lineage.fields.items())]
    rows = {
        (output, one.namespace, one.name, one.field, change.type, change.subtype or "", bool(change.masking))
        for output, fields in every
        for one in fields
        for change in one.transformations or (_UNKNOWN,)
    }
    return [list(row) for row in sorted(rows)[:COLUMNS_PER_DATASET_MAX]]
