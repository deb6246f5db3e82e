"""The checks of single objects: a record with everything that it refers to, or a receipt. Nothing is written.

A check that finds something is repeated: a request that was in progress during the first look is over by then. What
needs more than one object of a folder, such as chains and names that are used twice, is collected as facts.
"""

import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec

from sandur.catalog.events import CatalogEvent
from sandur.catalog.identifiers import Format
from sandur.catalog.locations import canonical_address
from sandur.catalog.maintenance.policies import PolicyRecord
from sandur.catalog.record_versions import Record
from sandur.catalog.records import (
    AttemptedFile,
    BoundRecord,
    Catalog,
    Claim,
    DeltaStage,
    DeltaTable,
    ModelVersion,
    NameRecord,
    NamespaceRecord,
    Pointer,
    PurgeOrder,
    Securable,
    Stage,
    Transaction,
    drop_of,
)
from sandur.catalog.security.users import User
from sandur.catalog.verification.findings import Finding, finding, in_flight
from sandur.catalog.verification.records import (
    HeadFacts,
    bound_findings,
    head_findings,
    name_findings,
    namespace_findings,
)
from sandur.errors import Damaged, Invalid, NewerRecord, NotFound, SandurError
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.delta.publishing import have_same_actions, published_location, staged_location
from sandur.operations.delta.versions import newest_in_log
from sandur.operations.janitors.events import receipted_commits
from sandur.operations.janitors.sweep import DAY_MS, is_older
from sandur.operations.lake import Lake
from sandur.operations.receipts import (
    CatalogReceipt,
    DeltaReceipt,
    Receipt,
    catalog_receipt_key,
    commit_key,
    delta_commit_key,
    delta_receipt_key,
    delta_receipt_of,
    receipt_key,
    receipt_of,
    receipt_of_event,
    tried_of,
)
from sandur.operations.tables.documents import load_head
from sandur.operations.transactions.resolution import effective_record
from sandur.settings import Settings, seconds_of
from sandur.splicing import NOT_JSON
from sandur.storage.cell import Versioned
from sandur.storage.contract import Listed
from sandur.storage.keys import decode_segment
from sandur.storage.layout import Layout
from sandur.storage.record_form import decode_record

R = TypeVar("R", bound=Record)

LOOKS_MAX: Final = 4
"""How often an object is looked at before a finding counts."""
LOOK_PAUSE_SECONDS: Final = 0.25
CHECKS_AT_ONCE: Final = 64

_TEXT_MAX: Final = 200


class Fact(NamedTuple):
    """What an object says about another one.

    `named`: an active name leads to the uuid. `perhaps`: so does one that is not settled. `living`: a record with that
    uuid lives. `receipt`: the commit key of a receipt, and as `other` that of the one before, empty for the first.
    """

    what: Literal["named", "perhaps", "living", "receipt"]
    key: str
    value: str
    other: str = ""


Checked = Finding | Fact
Check = Callable[[Lake, Listed], Awaitable[Sequence[Checked]]]
AnyReceipt = Receipt | DeltaReceipt | CatalogReceipt


def stale_ms(settings: Settings) -> int:
    """The age at which unfinished work is a finding: janitors have visited it at least once."""
    return seconds_of(settings.orphan_retention) * 1_000 + DAY_MS


def receipts_kept_from_ms(lake: Lake) -> int:
    """Receipts of earlier commits may have been collected."""
    return lake.clock.now_ms() - seconds_of(lake.settings.receipt_retention) * 1_000


async def check_listed(lake: Lake, check: Check, listed: Listed) -> Sequence[Checked]:
    """The result of a check of a listed object; an object that is gone by the next look has no finding."""
    return await look_again(lake, listed.key, partial(_check_now, lake, check, listed.key), first=listed)


async def _check_now(lake: Lake, check: Check, key: str, listed: Listed | None = None) -> Sequence[Checked]:
    now = listed or await lake.store.head(key)
    return await check(lake, now) if now else []


class Look(Protocol):
    """One look at an object; `listed` is how it was listed, None if that is too long ago."""

    async def __call__(self, listed: Listed | None = None) -> Sequence[Checked]: ...


async def look_again(lake: Lake, key: str, look: Look, *, first: Listed | None = None) -> Sequence[Checked]:
    """Look until there is no finding, at most LOOKS_MAX times: only findings of every look count.

    A request that was in progress during a look is over by a later one. What cannot be decoded is a finding.
    """
    latest = await _guarded(key, look(first))
    for _ in range(LOOKS_MAX - 1):
        found = {_identity(one) for one in latest if isinstance(one, Finding) and one.severity != "in_flight"}
        if not found:
            break
        await lake.clock.sleep(LOOK_PAUSE_SECONDS)
        again = await _guarded(key, look())
        latest = [one for one in again if not isinstance(one, Finding) or _is_kept(one, found)]
    return latest


def _identity(one: Finding) -> tuple[str, ...]:
    return one.kind, one.key, one.expected


def _is_kept(one: Finding, found: Collection[tuple[str, ...]]) -> bool:
    return one.severity == "in_flight" or _identity(one) in found


async def _guarded(key: str, looking: Awaitable[Sequence[Checked]]) -> Sequence[Checked]:
    try:
        return await looking
    except NewerRecord as error:
        return [finding("newer-record", key, expected="a version that this Sandur knows", found=_short(error))]
    except Damaged as error:
        return [finding("unreadable-record", error.key, expected="a record", found=_short(error.reason))]


def _short(reason: object) -> str:
    return str(reason)[:_TEXT_MAX]


async def read_record(lake: Lake, key: str, kind: type[R]) -> R | None:
    found = await lake.uncached(key, kind).read()
    return found.value if found else None


async def _read_listed(lake: Lake, listed: Listed, kind: type[R]) -> tuple[R | None, list[Checked]]:
    """The record, None if it is gone, and a finding if it is older than the format of a steady store (V4)."""
    record = await read_record(lake, listed.key, kind)
    form = lake.form
    if record is None or record.v >= form.major or not (form.is_read and form.is_steady):
        return record, []
    found = f"version {record.v}"
    return record, [finding("old-record", listed.key, expected=f"version {form.major}", found=found)]


async def check_record(lake: Lake, listed: Listed, *, kind: type[Record]) -> Sequence[Checked]:
    """A record that refers to nothing: it can be decoded."""
    _, found = await _read_listed(lake, listed, kind)
    return found


async def check_catalog(lake: Lake, listed: Listed) -> Sequence[Checked]:
    catalog, found = await _read_listed(lake, listed, Catalog)
    if catalog is None:
        return found
    name = lake.layout.parse_catalog(listed.key)
    if catalog.name != name and catalog.state != "dropped":
        found.append(finding("misplaced-record", listed.key, expected=f"the catalog {name}", found=catalog.name))
    return [*found, *await _events(lake, listed, catalog.last_event)]


async def check_namespace(lake: Lake, listed: Listed) -> Sequence[Checked]:
    """A namespace, its parent, and the receipt of its event."""
    record, found = await _read_listed(lake, listed, NamespaceRecord)
    if record is None:
        return found
    layout, namespace = lake.layout, lake.layout.parse_namespace(listed.key)
    parent: NamespaceRecord | Catalog | None
    if namespace.parent:
        parent = await read_record(lake, layout.namespace(namespace.parent), NamespaceRecord)
    else:
        parent = await read_record(lake, layout.catalog(namespace.catalog), Catalog)
    found += namespace_findings(listed.key, record, parent, is_stale=is_stale(lake, listed))
    return [*found, *await _events(lake, listed, record.last_event if record.state != "new" else None)]


_KEYS: Final[Mapping[Format, tuple[Callable[[Layout, str], str], type[BoundRecord]]]] = {
    "iceberg": (Layout.pointer, Pointer),
    "delta": (Layout.delta_table, DeltaTable),
    "unity": (Layout.securable, Securable),
}


async def _read_bound(lake: Lake, uuid: str, table_format: Format) -> BoundRecord | None:
    key_of, kind = _KEYS[table_format]
    return await read_record(lake, key_of(lake.layout, uuid), kind)


async def check_name(lake: Lake, listed: Listed) -> Sequence[Checked]:
    """A name: what it leads to, its namespace, and the receipt of its event (E2, E3)."""
    name, found = await _read_listed(lake, listed, NameRecord)
    if name is None:
        return found
    record = await _read_bound(lake, name.uuid, name.format) if name.uuid else None
    namespace = await read_record(
        lake, lake.layout.namespace(lake.layout.parse_name(listed.key).namespace), NamespaceRecord
    )
    found += name_findings(listed.key, name, record, namespace, is_stale=is_stale(lake, listed))
    if name.uuid and name.state != "free":
        found.append(Fact("named" if name.state == "active" else "perhaps", listed.key, name.uuid))
    return [
        *found,
        *await _events(lake, listed, name.last_event if name.state in {"active", "dropped"} else None),
    ]


async def check_bound(lake: Lake, listed: Listed, *, kind: type[BoundRecord]) -> Sequence[Checked]:
    """What names lead to: its files, the receipts of its commits and events, and the claims of its places."""
    read, found = await _read_listed(lake, listed, kind)
    if read is None:
        return found
    uuid = decode_segment(listed.key.rpartition("/")[2].removesuffix(".json"))
    found += bound_findings(listed.key, uuid, read, is_stale=is_stale(lake, listed))
    record = (await effective_record(lake, Versioned(read, listed.version))).value
    if record.state == "live":
        found.append(Fact("living", listed.key, record.uuid))
        found += await _places(lake, listed, record)
    match record:
        case Pointer():
            found += await _commits(lake, listed, record)
        case DeltaTable():
            found += await _delta_commits(lake, listed, record)
        case Securable():
            pass
    dropped = record.last_event if record.state in {"dropped", "purging"} else None
    return [*found, *await _events(lake, listed, record.last_change, dropped)]


async def _commits(lake: Lake, listed: Listed, pointer: Pointer) -> Sequence[Finding]:
    """The metadata file of a table or view that lives, and the receipts of the commits in its pointer (C5, B4)."""
    head = pointer.head
    if head is None or pointer.state not in {"live", "dropped", "purging"}:
        return []
    found: list[Finding] = []
    for one in (*pointer.passed, head):
        key, receipt = receipt_key(lake.layout, tried_of(one)), receipt_of(pointer.table_uuid, one)
        found += await _receipt(lake, listed, key, receipt, is_collectable=True)
    if pointer.state != "live":
        return found
    expected = f"the metadata file {head.metadata_location}"
    try:
        lake.locations.holder(head.metadata_location)
    except Invalid as error:
        return [*found, finding("metadata-not-allowed", listed.key, expected=expected, found=error.public_text)]
    try:
        metadata = (await load_head(lake, pointer.kind, head)).metadata
    except NotFound:
        return [*found, finding("metadata-missing", listed.key, expected=expected, found="no file")]
    except SandurError as error:
        return [*found, finding("metadata-unreadable", listed.key, expected=expected, found=_short(error))]
    says = _says(metadata)
    return [*found, *head_findings(listed.key, pointer, head, says)]


def _says(metadata: TableMetadata | ViewMetadata) -> HeadFacts:
    match metadata:
        case TableMetadata():
            return HeadFacts(metadata.table_uuid, metadata.current_snapshot_id, metadata.last_updated_ms or None)
        case ViewMetadata():
            return HeadFacts(metadata.view_uuid, None, None)


async def _delta_commits(lake: Lake, listed: Listed, table: DeltaTable) -> Sequence[Finding]:
    """L1, L3, L4: every tracked commit has its staged or its published file, equal if both exist, and its receipt. No
    version beyond the newest one is published.
    """
    found: list[Finding] = []
    for commit in receipted_commits(table):
        made = delta_receipt_of(table, commit)
        found += await _receipt(lake, listed, delta_receipt_key(lake.layout, made), made, is_collectable=True)
    for commit in table.commits if table.state == "live" else ():
        staged = staged_location(table, commit.file_name)
        published = published_location(table, commit.version)
        try:
            are_there = [await lake.locations.exists(one) for one in (staged, published)]
            is_same = await have_same_actions(lake, staged, published) if all(are_there) else None
        except Invalid:  # The settings do not allow the location: only clients reach it.
            return found
        must_be_published = commit.version <= table.published
        if not any(are_there) or (must_be_published and not are_there[1]):
            expected = published if must_be_published else staged
            found.append(finding("delta-file-missing", listed.key, expected=expected, found="no file"))
        elif is_same is False:
            expected = f"the actions of {staged}"
            found.append(finding("delta-file-differs", listed.key, expected=expected, found=published))
    if (table.state, table.table_type, table.data_source_format) == ("live", "MANAGED", "DELTA"):
        with contextlib.suppress(Invalid):  # As above.
            newest = await newest_in_log(lake, table.location, at_least=table.last_version)
            if newest > table.last_version:
                expected, ahead = f"version {table.last_version}", f"version {newest} in the log at {table.location}"
                found.append(finding("delta-log-ahead", listed.key, expected=expected, found=ahead))
    return found


async def _places(lake: Lake, listed: Listed, record: BoundRecord) -> Sequence[Finding]:
    """P3, P9: every named place of a table that lives has a claim with the table as a holder."""
    found = []
    for place in record.places:
        claim = await lake.location_claim(canonical_address(place)).read()
        holders = [holder.owner.uuid for holder in claim.value.holders] if claim else []
        if record.uuid not in holders:
            text = f"held by {', '.join(holders)}" if holders else "no claim"
            found.append(finding("place-without-claim", listed.key, expected=f"a claim of {place}", found=text))
    return found


async def _events(lake: Lake, listed: Listed, *events: CatalogEvent | None) -> Sequence[Finding]:
    """E2: the receipts of the events that a record shows."""
    found: list[Finding] = []
    for event in events:
        if event is not None:
            receipt = receipt_of_event(event)
            key = catalog_receipt_key(lake.layout, receipt)
            found += await _receipt(lake, listed, key, receipt, is_collectable=False)
    return found


async def _receipt(
    lake: Lake, listed: Listed, key: str, receipt: AnyReceipt, *, is_collectable: bool
) -> Sequence[Finding]:
    """C5, E2: the receipt of what a record shows. It follows the answer, so that of a recent change may be missing."""
    if is_collectable and receipt.committed_at_ms < receipts_kept_from_ms(lake):
        return []
    stored = await lake.store.get(key)
    if stored is None and is_stale(lake, listed):
        return [finding("receipt-missing", listed.key, expected=f"its receipt {key}", found="no receipt")]
    if stored is None:
        return [in_flight(listed.key, f"no receipt yet: {key}", is_stale=False)]
    if not _is_receipt_of(stored.data, receipt):
        return [finding("receipt-differs", key, expected=f"the receipt of {listed.key}", found="other content")]
    return []


def _is_receipt_of(data: bytes, receipt: AnyReceipt) -> bool:
    """Whether stored bytes are that receipt; one of an earlier release has fewer fields, and the same keys."""
    try:
        stored = msgspec.json.decode(data, type=type(receipt))
    except NOT_JSON:
        return False
    return (stored.commit_key, stored.previous_commit_key) == (receipt.commit_key, receipt.previous_commit_key)


async def check_model_version(lake: Lake, listed: Listed) -> Sequence[Checked]:
    version, found = await _read_listed(lake, listed, ModelVersion)
    if version is None:
        return found
    uuid = decode_segment(listed.key.removeprefix(lake.layout.all_model_versions_folder()).partition("/")[0])
    model = await read_record(lake, lake.layout.securable(uuid), Securable)
    if model is None or model.last_version < version.version:
        text = "no model" if model is None else f"its newest version is {model.last_version}"
        expected = f"the model {uuid} with version {version.version}"
        found.append(finding("version-without-model", listed.key, expected=expected, found=text))
    return [*found, *await _events(lake, listed, version.last_event)]


async def check_request(lake: Lake, listed: Listed, *, kind: type[Record]) -> Sequence[Checked]:
    """What a request in progress wrote: a claim, a stage or a transaction. Janitors remove it once it is old."""
    record, found = await _read_listed(lake, listed, kind)
    lifetimes = (lake.settings.idempotency_key_lifetime, lake.settings.stage_ttl, lake.settings.orphan_retention)
    kept_ms = max(map(seconds_of, lifetimes)) * 1_000 + 3 * DAY_MS
    what = f"a {kind.__name__.lower()}"
    if record is not None and is_older(lake, listed, kept_ms):
        found.append(in_flight(listed.key, f"{what} that nothing needs any more", is_stale=True))
    elif isinstance(record, Claim | Transaction) and record.state in {"open", "preparing"}:
        found.append(in_flight(listed.key, f"{what} that is {record.state}", is_stale=False))
    return found


async def check_purge_order(lake: Lake, listed: Listed) -> Sequence[Checked]:
    """U6, U7: an order counts for one drop. A janitor removes one of a table that lives."""
    order, found = await _read_listed(lake, listed, PurgeOrder)
    record = await _read_bound(lake, order.uuid, order.format) if order and not order.blocked else None
    if order is None or record is None:
        return found
    if record.state == "live":
        is_old, what = is_stale(lake, listed), "an order for a table that lives"
        found.append(in_flight(listed.key, what, is_stale=is_old, kind="order-of-living-table"))
    elif record.state in {"dropped", "purging"} and drop_of(record) == order.drop:
        found.append(in_flight(listed.key, "files that wait for their deletion", is_stale=False))
    return found


async def check_receipt(lake: Lake, listed: Listed) -> Sequence[Checked]:
    """C5, E1: the key of a receipt follows from its content, and it names the one before it."""
    receipt = await read_receipt(lake, listed.key)
    if receipt is None:
        return []
    expected = receipt_object_key(lake.layout, receipt)
    if expected != listed.key:
        return [finding("receipt-differs", listed.key, expected="a receipt with this key", found=f"that of {expected}")]
    return [Fact("receipt", listed.key, receipt.commit_key, receipt.previous_commit_key or "")]


async def read_receipt(lake: Lake, key: str) -> AnyReceipt | None:
    """The receipt under a key; None if it is gone. Raises Damaged."""
    kinds: Mapping[str, type[AnyReceipt]] = {"iceberg": Receipt, "delta": DeltaReceipt, "catalog": CatalogReceipt}
    kind = kinds.get(lake.layout.parse_receipt(key).family)
    stored = await lake.store.get(key)
    return decode_record(key, stored.data, kind) if stored and kind else None


def receipt_object_key(layout: Layout, receipt: AnyReceipt) -> str:
    """The object key that follows from the content of a receipt."""
    match receipt:
        case Receipt():
            # The key of a registered file hashes the id of its registration, too, which only the head has.
            is_registered = receipt.operation == "register"
            own = receipt.commit_key if is_registered else commit_key(receipt.metadata_location)
            tried = AttemptedFile(receipt.metadata_location, receipt.committed_at_ms)
            return layout.receipt(layout.parse_receipt(receipt_key(layout, tried)).date, "iceberg", own)
        case DeltaReceipt():
            own = delta_commit_key(receipt.table_uuid, receipt.version, receipt.file_name)
            return delta_receipt_key(layout, msgspec.structs.replace(receipt, commit_key=own))
        case CatalogReceipt():
            return catalog_receipt_key(layout, receipt)


def is_stale(lake: Lake, listed: Listed) -> bool:
    """Whether unfinished work is so old that only a janitor finishes it."""
    return is_older(lake, listed, stale_ms(lake.settings))


FOLDERS: Final[Mapping[Callable[[Layout], str], Check]] = {
    # Names before what they lead to: the uuids of names are known then.
    Layout.all_names_folder: check_name,
    Layout.pointers_folder: partial(check_bound, kind=Pointer),
    Layout.delta_tables_folder: partial(check_bound, kind=DeltaTable),
    Layout.securables_folder: partial(check_bound, kind=Securable),
    Layout.all_namespaces_folder: check_namespace,
    Layout.catalogs_folder: check_catalog,
    Layout.all_model_versions_folder: check_model_version,
    Layout.users_folder: partial(check_record, kind=User),
    Layout.policies_folder: partial(check_record, kind=PolicyRecord),
    Layout.commit_claims_folder: partial(check_request, kind=Claim),
    Layout.claims_folder: partial(check_request, kind=Claim),
    Layout.stages_folder: partial(check_request, kind=Stage),
    Layout.delta_stages_folder: partial(check_request, kind=DeltaStage),
    Layout.transactions_folder: partial(check_request, kind=Transaction),
    Layout.purge_orders_folder: check_purge_order,
    Layout.events_folder: check_receipt,
}
"""The folders of a workspace whose objects are checked one by one."""
