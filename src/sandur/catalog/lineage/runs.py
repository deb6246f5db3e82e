"""Runs of jobs after the fold of their events: what each read and wrote, and how its datasets may be found here."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from sandur.catalog.lineage.events import SEPARATOR, Facts, Json
from sandur.catalog.locations import normalize_location

OWN_NAMESPACE: Final = "sandur"
"""The namespace of datasets under their full names in this catalog, for clients that know them."""
COMMAND_RESULT: Final = "command_result"
"""The end of the names of jobs with which Spark only shows what a statement returned."""

_PREFIXES_MAX: Final = 32
_NAMES: Final = 3
_COUNT_MAX: Final = (1 << 63) - 1
_SERVERS: Final = frozenset({"http", "https", "unitycatalog", OWN_NAMESPACE})
_FULL_NAMES: Final = frozenset({"unitycatalog", OWN_NAMESPACE})


class Reference(msgspec.Struct, frozen=True):
    """A dataset that an event names, and the keys under which it may be a table of this catalog, the best one first."""

    name: str
    keys: tuple[str, ...]


class Port(NamedTuple):
    """A dataset of a run. `uuid` and `commit_key` are known only of what the pipeline itself wrote."""

    reference: Reference
    version: str | None = None
    rows: int | None = None
    size_bytes: int | None = None
    uuid: str | None = None
    commit_key: str | None = None


class ColumnEdge(NamedTuple):
    """A column of `target` that depends on a column of `source`; an empty target column stands for all rows."""

    source: Reference
    target: Reference
    source_column: str
    target_column: str
    type: str
    subtype: str
    masking: bool


class RunLineage(NamedTuple):
    """A run after the fold of its events. Times are in milliseconds."""

    run_id: str
    job_namespace: str
    job_name: str
    state: str
    started_ms: int
    last_ms: int
    parent_run_id: str | None
    parent_job: str | None
    error: str | None
    engine: str | None
    principal: str
    principal_id: str
    is_trusted: bool
    is_own: bool
    inputs: Sequence[Port]
    outputs: Sequence[Port]
    columns: Sequence[ColumnEdge]


def run_of(facts: Facts, *, default_catalog: str, hosts: Sequence[str] = ()) -> RunLineage:
    """The run that the facts describe. `hosts` are further addresses of this server, besides the one that was used."""
    principal, principal_id, host, is_trusted, is_own = _items(facts, "sender", 5)
    found = _datasets(facts)
    naming = _Naming(default_catalog, frozenset(text.lower() for text in (_text(host) or "", *hosts)) - {""})
    # Column lineage names its inputs by their place only: their other names are those of the inputs of the run.
    references = {named: naming.reference(named, about) for role in "oi" for named, about in found[role].items()}
    job, parent = _items(facts, "job", 2), _items(facts, "parent", 3)
    return RunLineage(
        run_id=_plain(facts, "run"),
        job_namespace=_text(job[0]) or "",
        job_name=_text(job[1]) or "",
        state=_plain(facts, "end") or _plain(facts, "state"),
        started_ms=_number(facts, "<start"),
        last_ms=_number(facts, "last"),
        parent_run_id=_text(parent[0]),
        parent_job=f"{parent[1]}:{parent[2]}" if parent[0] else None,
        error=_text(_value(facts, "error")),
        engine=_text(_value(facts, "engine")),
        principal=_text(principal) or "",
        principal_id=_text(principal_id) or "",
        is_trusted=bool(is_trusted),
        is_own=bool(is_own),
        inputs=[_port(references[named], about) for named, about in found["i"].items()],
        outputs=[_port(references[named], about) for named, about in found["o"].items()],
        columns=list(_column_edges(references, found["o"], naming)),
    )


_About = dict[tuple[str, str], dict[str, Json]]


def _datasets(facts: Facts) -> Mapping[str, _About]:
    """What is known about each input (`i`) and output (`o`), by its namespace and name."""
    found: dict[str, _About] = {"i": {}, "o": {}}
    for key, (_, value) in sorted(facts.items()):
        role, *names = key.removeprefix("<").split(SEPARATOR)
        if role in found and len(names) == _NAMES:
            namespace, name, fact = names
            found[role].setdefault((namespace, name), {})[fact] = value
    return found


class _Naming(NamedTuple):
    """How datasets are named in this catalog: the catalog of clients that name none, and the server's addresses."""

    default_catalog: str
    hosts: frozenset[str]

    def reference(self, named: tuple[str, str], about: Mapping[str, Json]) -> Reference:
        return reference_of(named, about, default_catalog=self.default_catalog, hosts=self.hosts)


def _port(reference: Reference, about: Mapping[str, Json]) -> Port:
    rows, size = _list(about.get("statistics"), 2)
    uuid, commit_key = _list(about.get("commit"), 2)
    return Port(
        reference,
        _text(about.get("version")),
        _count(rows),
        _count(size),
        _text(uuid),
        _text(commit_key),
    )


def _column_edges(
    references: Mapping[tuple[str, str], Reference], outputs: _About, naming: _Naming
) -> Iterable[ColumnEdge]:
    for target, about in outputs.items():
        rows = about.get("columns")
        for row in rows if isinstance(rows, list) else ():
            column, namespace, name, field, kind, subtype, masking = _list(row, 7)
            named = (str(namespace), str(name))
            source = references.get(named) or naming.reference(named, {})
            texts = (str(field), str(column), str(kind), str(subtype))
            yield ColumnEdge(source, references[target], *texts, bool(masking))


def _count(value: Json) -> int | None:
    """A number that fits into a column; clients may send any."""
    return value if isinstance(value, int) and 0 <= value <= _COUNT_MAX else None


def _plain(facts: Facts, key: str) -> str:
    return _text(_value(facts, key)) or ""


def _number(facts: Facts, key: str) -> int:
    value = _value(facts, key)
    return value if isinstance(value, int) else 0


def _value(facts: Facts, key: str) -> Json:
    return facts[key][1] if key in facts else None


def _items(facts: Facts, key: str, count: int) -> Sequence[Json]:
    return _list(_value(facts, key), count)


def _list(value: Json, count: int) -> Sequence[Json]:
    return value if isinstance(value, list) and len(value) == count else [None] * count


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) and value else None


def reference_of(
    named: tuple[str, str], about: Mapping[str, Json], *, default_catalog: str, hosts: frozenset[str]
) -> Reference:
    """The reference to a dataset: its full names in this catalog first, then its place and all places above it."""
    links = about.get("links")
    names = (
        [(str(link[0]), str(link[1])) for link in links if isinstance(link, list)] if isinstance(links, list) else []
    )
    warehouse = _text(about.get("warehouse"))
    keys = [_name_key(*one, warehouse or default_catalog, hosts) for one in (*names, named)]
    keys += [key for one in (named, *names) for key in _place_keys(*one)]
    return Reference(external_name(*named), tuple(dict.fromkeys(filter(None, keys))))


def external_name(namespace: str, name: str) -> str:
    """The name of a dataset that is no table of this catalog, or not any more."""
    return name if namespace == OWN_NAMESPACE and name.count(".") > 1 else f"{namespace}:{name}"


def name_key(full_name: str) -> str:
    return f"name {full_name}"


def place_key(location: str) -> str:
    return f"place {normalize_location(location)}"


def _name_key(namespace: str, name: str, catalog: str, hosts: frozenset[str]) -> str | None:
    """The key of a name in this catalog; None if the namespace is not this server."""
    if namespace == OWN_NAMESPACE:
        return name_key(name)
    try:
        address = urlsplit(namespace)
    except ValueError:
        return None
    if address.netloc.lower() not in hosts:
        return None
    if address.scheme in _FULL_NAMES:
        return name_key(name)
    # A warehouse that is not the name of a catalog is a place, such as s3://bucket/warehouse.
    is_catalog = address.scheme in _SERVERS and "/" not in catalog
    return name_key(f"{catalog}.{name}") if is_catalog else None


def _place_keys(namespace: str, name: str) -> Sequence[str]:
    """The key of a place and of every folder above it, the longest first; empty if the dataset is not a place."""
    scheme = namespace.partition("://")[0]
    if namespace == "file" or namespace.startswith("file:"):
        place = f"file:///{name.lstrip('/')}"
    elif "://" in namespace and scheme not in _SERVERS:
        place = f"{namespace.rstrip('/')}/{name.lstrip('/')}"
    else:
        return ()
    scheme, _, path = normalize_location(place).partition("://")
    parts = path.rstrip("/").split("/")
    depths = range(len(parts), 1, -1)
    return [f"place {scheme}://{'/'.join(parts[:depth])}" for depth in depths][:_PREFIXES_MAX]
