"""Maintenance policies: what may be done to a table and when, and where each value of its policy comes from.

A policy is set on a workspace, a catalog, a namespace or a table, and names only the fields that it decides. The policy
of a table is merged field by field: the nearest scope that names a field decides it, and a property of the table
decides it before all scopes. A scope can lock a field: then neither a nearer scope nor a property changes it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

import msgspec

from sandur.catalog.events import CatalogEvent
from sandur.catalog.record_versions import Record
from sandur.catalog.records import LastChange
from sandur.errors import BadRequest, Invalid
from sandur.settings import duration_of, seconds_of
from sandur.splicing import count_in

_DAY_S: Final = 86_400
ORPHAN_AGE_MIN_S: Final = 3 * _DAY_S
"""A file younger than this may belong to a commit that has not happened yet."""
ORPHAN_WAIT_MIN_S: Final = _DAY_S
"""The time between finding an orphan and deleting it."""
SNAPSHOT_AGE_MIN_S: Final = _DAY_S
"""A reader may still use a snapshot of this age, for example by a plan."""
POLICY_BYTES_MAX: Final = 64 << 10

_BY: Final = "property "
"""How the origin of a field begins that a property of the table decides."""
_WINDOW: Final = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])-([01][0-9]|2[0-3]):([0-5][0-9])\Z")

Bytes = Annotated[int, msgspec.Meta(ge=1 << 20, le=1 << 50)]
Count = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Duration = str
"""An ISO-8601 duration such as P3D."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    enabled: bool = True


class Compaction(_Section, frozen=True, kw_only=True):
    """Rewriting of small data files, and of those with many deleted rows.

    `sort_order` is for the strategies `sort` and `zorder`; where it is empty after all, files are only packed.
    """

    strategy: Literal["binpack", "sort", "zorder"] = "binpack"
    sort_order: str = ""
    target_file_bytes: Bytes = 512 << 20
    small_file_share: Share = 0.75
    min_input_files: Count = 5
    deleted_rows_share: Share = 0.3
    delete_files_per_file: Count = 5


class Deletes(_Section, frozen=True, kw_only=True):
    """Merging of position delete files, and removal of those that delete nothing any more."""

    min_files: Count = 10


class Manifests(_Section, frozen=True, kw_only=True):
    target_bytes: Bytes = 8 << 20
    min_manifests: Count = 20


class Snapshots(_Section, frozen=True, kw_only=True):
    """Expiry of old snapshots. Branches and tags stay unless `ages_references` lets their own age end them."""

    max_age: Duration = "P5D"
    min_to_keep: Count = 1
    min_expired: Count = 20
    ages_references: bool = False


class Orphans(_Section, frozen=True, kw_only=True):
    """Deletion of files that nothing refers to: found once, and deleted by a later run after `wait`."""

    age: Duration = "P3D"
    wait: Duration = "P1D"
    share_max: Share = 0.3
    interval: Duration = "P7D"


class Statistics(_Section, frozen=True, kw_only=True):
    enabled: bool = False
    interval: Duration = "P7D"


class Delta(_Section, frozen=True, kw_only=True):
    """Work that only Delta tables need; their data files are rewritten by the section `compaction`."""

    vacuum: bool = True
    deleted_file_retention: Duration = "P7D"
    checkpoint_interval: Count = 10
    publishes: bool = True


class Budget(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    bytes_per_day: Bytes = 1 << 40
    task_seconds_per_day: Count = 86_400
    tables_per_run: Count = 1_000


class Policy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything that a policy decides, with the defaults. `report` only measures and plans: nothing changes.

    `window` limits work to a time of day in UTC, such as `22:00-06:00`; empty means always. A table is left alone until
    it has had no commit for `quiet`.
    """

    mode: Literal["report", "run"] = "report"
    window: str = ""
    quiet: Duration = "PT10M"
    priority: Annotated[int, msgspec.Meta(ge=1, le=100)] = 50
    budget: Budget = Budget()
    compaction: Compaction = Compaction()
    deletes: Deletes = Deletes()
    manifests: Manifests = Manifests()
    snapshots: Snapshots = Snapshots()
    orphans: Orphans = Orphans()
    statistics: Statistics = Statistics()
    delta: Delta = Delta()


DEFAULT: Final = Policy()

Values = Mapping[str, Any]
"""Some fields of a policy, in sections, as JSON has them."""

Field = str
"""The name of a field with its section, such as `compaction.target_file_bytes`."""


class PolicyRecord(Record, frozen=True, kw_only=True):
    """The policy of one scope: the fields that it decides, and those of them that nothing below may change.

    `record` is the key of the record of its scope, which the janitor looks for; empty for the workspace.
    """

    scope_id: str
    record: str = ""
    values: dict[str, Any] = msgspec.field(default_factory=dict)
    locked: tuple[Field, ...] = ()
    change: LastChange | None = None
    last_event: CatalogEvent | None = None
    updated_ms: int = 0
    updated_by: str = ""


class PolicyEdit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A change of a policy: fields to set, as sections, and the names of fields to unset, lock and unlock."""

    set: dict[str, Any] = {}
    unset: tuple[Field, ...] = ()
    lock: tuple[Field, ...] = ()
    unlock: tuple[Field, ...] = ()


class ScopePolicy(NamedTuple):
    """The policy of a scope with its name for people, such as `catalog main`."""

    scope: str
    values: Values
    locked: Sequence[Field] = ()


SYSTEM: Final = ScopePolicy(
    "default of system tables",
    {
        "mode": "run",
        "quiet": "PT0S",
        "compaction": {"min_input_files": 16},
        "snapshots": {"max_age": "P1D", "min_to_keep": 20},
        "orphans": {"enabled": False},
    },
)
"""The policy of the pipeline's own tables, below that of their catalog and above that of their namespace.

Only the pipeline writes to them, and never beside a maintenance run, so nothing has to be quiet. Their orphans stay.
"""


class FieldOrigin(NamedTuple):
    """The value of one field, and the scope or property that decides it; `locked_by` is empty if nothing locks it."""

    field: Field
    value: object
    origin: str
    locked_by: str = ""

    @property
    def is_property(self) -> bool:
        return self.origin.startswith(_BY)


class MergedPolicy(NamedTuple):
    policy: Policy
    origins: Sequence[FieldOrigin]


def checked_policy(values: object, locked: Sequence[Field] = ()) -> Values:
    """The fields themselves; raises Invalid with the name of the field that is unknown or out of range."""
    if not isinstance(values, dict):
        raise Invalid("Invalid policy: expected a JSON object of sections and fields")
    if len(msgspec.json.encode(values)) > POLICY_BYTES_MAX:
        raise Invalid(f"Invalid policy: more than {POLICY_BYTES_MAX >> 10} KiB")
    compaction = policy_of(values).compaction
    if compaction.strategy != "binpack" and not compaction.sort_order:
        raise Invalid(f"Invalid policy: compaction.strategy {compaction.strategy!r} needs compaction.sort_order")
    given = dict(_flat(values))
    for field in locked:
        if field not in given:
            raise Invalid(f"Invalid policy: locks {field!r}, which it does not set")
    return values


def edited_policy(values: Values, locked: Sequence[Field], edit: PolicyEdit) -> tuple[Values, tuple[Field, ...]]:
    """The fields and locks after a change; raises Invalid if the result is no policy. An unset field is unlocked."""
    policy_of(edit.set)
    known = dict(_flat(msgspec.to_builtins(DEFAULT)))
    for field in (*edit.unset, *edit.lock, *edit.unlock):
        if field not in known:
            raise Invalid(f"Invalid policy: there is no field {field[:80]!r}; the fields are: {', '.join(known)}")
    kept = {field: value for field, value in _flat(values) if field not in edit.unset}
    origins = [FieldOrigin(field, value, "") for field, value in {**kept, **dict(_flat(edit.set))}.items()]
    locks = {*locked, *edit.lock} - {*edit.unlock, *edit.unset}
    after = _nested(origins)
    return checked_policy(after, sorted(locks)), tuple(sorted(locks))


def policy_of(values: Values) -> Policy:
    """The policy with these fields, and the defaults of all others; raises Invalid."""
    try:
        policy = msgspec.convert(values, Policy)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid policy: {error}") from error
    _check_durations(policy)
    if policy.window and not _WINDOW.match(policy.window):
        raise Invalid(f"Invalid policy: window {policy.window!r}: expected a time of day in UTC such as 22:00-06:00")
    return policy


_FLOORS: Final[Mapping[Field, int]] = {
    "quiet": 0,
    "snapshots.max_age": SNAPSHOT_AGE_MIN_S,
    "orphans.age": ORPHAN_AGE_MIN_S,
    "orphans.wait": ORPHAN_WAIT_MIN_S,
    "orphans.interval": 0,
    "statistics.interval": 0,
    "delta.deleted_file_retention": 7 * _DAY_S,
}
"""The shortest allowed length of every duration, in seconds."""


def _check_durations(policy: Policy) -> None:
    fields = dict(_flat(msgspec.to_builtins(policy)))
    for field, floor in _FLOORS.items():
        try:
            seconds = seconds_of(str(fields[field]))
        except BadRequest as error:
            raise Invalid(f"Invalid policy: {field}: {error}") from error
        if seconds < floor:
            raise Invalid(f"Invalid policy: {field} is {fields[field]}, less than {floor // _DAY_S} days")


def policy_hash(merged: MergedPolicy) -> str:
    """Identifies the values of a policy; scopes that lead to the same values have the same hash."""
    return hashlib.sha256(msgspec.json.encode(merged.policy, order="deterministic")).hexdigest()[:16]


def merged_policy(scopes: Sequence[ScopePolicy], properties: Mapping[str, str] | None = None) -> MergedPolicy:
    """The policy of a table: `scopes` from the workspace down to the table, then the properties of the table.

    A property with a value that the field does not allow is ignored: any writer of the table may have set it.
    """
    return _with(_of_scopes(scopes), _from_properties(properties or {}))


def with_properties(merged: MergedPolicy, properties: Mapping[str, str]) -> MergedPolicy:
    """A policy with the properties that its table has now; those that it had before count as well."""
    return _with({one.field: one for one in merged.origins}, _from_properties(properties))


def merged_again(scopes: Sequence[ScopePolicy], own: str) -> MergedPolicy:
    """The policy of a table by what its scopes say now, and by the properties that decided it when it was measured.

    `own` is the JSON list of the FieldOrigin that were not the defaults then.
    """
    decided = [one for one in msgspec.json.decode(own, type=tuple[FieldOrigin, ...]) if one.origin.startswith(_BY)]
    return _with(_of_scopes(scopes), ((one.field, one.value, one.origin.removeprefix(_BY)) for one in decided))


def _of_scopes(scopes: Sequence[ScopePolicy]) -> dict[Field, FieldOrigin]:
    found = {field: FieldOrigin(field, value, "default") for field, value in _flat(msgspec.to_builtins(DEFAULT))}
    for scope, values, locked in scopes:
        for field, value in _flat(values):
            before = found.get(field)
            if before is not None and not before.locked_by:
                found[field] = FieldOrigin(field, value, scope, scope if field in locked else "")
    return found


def _with(found: dict[Field, FieldOrigin], decided: Iterable[tuple[Field, object, str]]) -> MergedPolicy:
    """A policy in which properties decide fields: each is the field, its value and the name of the property."""
    for field, value, name in decided:
        if not found[field].locked_by and _is_valid(found, field, value):
            found[field] = FieldOrigin(field, value, f"{_BY}{name}")
    return MergedPolicy(policy_of(_nested(found.values())), tuple(found.values()))


PROPERTY_PREFIX: Final = "maintenance."
"""A table property with this prefix and the name of a field decides the field."""

GC_ENABLED: Final = "gc.enabled"
_MILLISECONDS: Final = frozenset({"snapshots.max_age"})
_PROPERTIES: Final[Mapping[str, Field]] = {
    "write.target-file-size-bytes": "compaction.target_file_bytes",
    "commit.manifest.target-size-bytes": "manifests.target_bytes",
    "history.expire.max-snapshot-age-ms": "snapshots.max_age",
    "history.expire.min-snapshots-to-keep": "snapshots.min_to_keep",
}
"""Properties of Iceberg that mean the same as a field. Writers obey them, so maintenance must not undo their work."""


def forbids_deletion(properties: Mapping[str, Any]) -> bool:
    """Whether a table says that others may need its files (O10): any value but `true`, as in Iceberg's Java library."""
    return str(properties.get(GC_ENABLED, "true")).lower() != "true"


def _from_properties(properties: Mapping[str, str]) -> Iterator[tuple[Field, object, str]]:
    """Fields that properties decide, with the value and the property; our own properties come last and win."""
    kinds = dict(_flat(msgspec.to_builtins(DEFAULT)))
    for name, field in _PROPERTIES.items():
        if name in properties:
            yield field, _converted(properties[name], field, kinds[field]), name
    if forbids_deletion(properties):
        for field in ("snapshots.enabled", "orphans.enabled", "delta.vacuum"):
            yield field, False, GC_ENABLED
    for name, text in properties.items():
        field = name.removeprefix(PROPERTY_PREFIX)
        if name.startswith(PROPERTY_PREFIX) and field in kinds:
            yield field, _converted(text, field, kinds[field]), name


def _converted(text: str, field: Field, like: object) -> object:
    """The text of a property as a value of the field's type; the text itself if it cannot be one."""
    if field in _MILLISECONDS and (age_ms := count_in(text)) is not None:
        return duration_of(age_ms // 1_000)
    try:
        return msgspec.convert(text, type(like), strict=False)
    except msgspec.ValidationError:
        return text


def _is_valid(found: Mapping[Field, FieldOrigin], field: Field, value: object) -> bool:
    try:
        policy_of(_nested({**found, field: FieldOrigin(field, value, "")}.values()))
    except Invalid:
        return False
    return True


def _flat(values: Values, prefix: str = "") -> Iterator[tuple[Field, object]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _nested(origins: Iterable[FieldOrigin]) -> Values:
    values: dict[str, Any] = {}
    for origin in origins:
        section, _, name = origin.field.rpartition(".")
        (values.setdefault(section, {}) if section else values)[name] = origin.value
    return values


class _PolarisPolicy(msgspec.Struct, frozen=True):
    """The content of a policy in the form of Apache Polaris; types have further keys."""

    version: str = ""
    enable: bool = True
    config: dict[str, Any] = {}


_POLARIS: Final[Mapping[str, tuple[str, Mapping[str, Field]]]] = {
    "system.data-compaction": (
        "compaction",
        {"target_file_size_bytes": "target_file_bytes", "min_input_files": "min_input_files"},
    ),
    "system.metadata-compaction": ("manifests", {"target_manifest_size_bytes": "target_bytes"}),
    "system.orphan-file-removal": ("orphans", {"max_orphan_file_age_in_days": "age"}),
    "system.snapshot-expiry": (
        "snapshots",
        {"min_snapshot_to_keep": "min_to_keep", "max_snapshot_age_days": "max_age"},
    ),
}
POLARIS_TYPES: Final = tuple(_POLARIS)
_IN_DAYS: Final = frozenset({"age", "max_age"})


def from_polaris(policy_type: str, content: Mapping[str, Any]) -> tuple[Values, Sequence[str]]:
    """The fields of a policy in the form of Polaris, and those of its keys that mean nothing here.

    A key may be in the content or in its configuration. Polaris keeps all values of a configuration as texts.
    """
    if policy_type not in _POLARIS:
        raise Invalid(f"Invalid policy type {policy_type[:80]!r}: expected one of {', '.join(POLARIS_TYPES)}")
    try:
        policy = msgspec.convert(content, _PolarisPolicy)
    except msgspec.ValidationError as error:
        raise Invalid(f"Invalid policy of Polaris: {error}") from None
    section, fields = _POLARIS[policy_type]
    given = policy.config | {name: content[name] for name in content if name not in _PolarisPolicy.__struct_fields__}
    values: dict[str, Any] = {"enabled": policy.enable}
    for name, value in given.items():
        if field := fields.get(name):
            values[field] = f"P{value}D" if field in _IN_DAYS else _number(value)
    return checked_policy({section: values}), [name for name in given if name not in fields]


def _number(value: object) -> object:
    """The number that a text is; any other value as it is, and the check of the policy judges it."""
    number = count_in(value) if isinstance(value, str) else None
    return value if number is None else number


def is_open(window: str, time_ms: int) -> bool:
    """Whether a time is inside a window; one that ends before it begins spans midnight."""
    parts = _WINDOW.match(window)
    if parts is None:
        return True
    from_hour, from_minute, to_hour, to_minute = map(int, parts.groups())
    begin, end = from_hour * 60 + from_minute, to_hour * 60 + to_minute
    minute = time_ms // 60_000 % 1_440
    return begin <= minute < end if begin < end else minute >= begin or minute < end
