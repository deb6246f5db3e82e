"""The layout of the store: every key of the catalog, built and parsed only here."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, assert_never

from sandur.catalog.aliases import NO_ALIASES, Aliases
from sandur.catalog.identifiers import Identifier, Namespace
from sandur.catalog.index import Scope
from sandur.catalog.locations import Address
from sandur.errors import BadRequest, Invalid
from sandur.storage.keys import KEY_BYTES_MAX, decode_levels, decode_segment, encode_levels, encode_segment, split_path

COMMITTED: Final = "committed"
"""The folder of receipts: they prove that a commit happened."""

EventFamily = Literal["iceberg", "delta", "catalog"]

_JSON = ".json"
_INDEX_JSON = ".v1.json"
_AUDIT_LINES = ".jsonl.gz"
_LINEAGE_BATCH = ".json.gz"
_ROOTS_MAX = 4_096  # Every key of a request starts with the same root.


class ReceiptKey(NamedTuple):
    """The parts of a receipt's key."""

    date: str
    family: str
    state: str
    commit_key: str


TENANT_PREFIX = "tenant"
"""Sorts before every key of every tenant."""


def layout_of(key: str) -> "Layout | None":
    """The layout of the workspace that a key belongs to; None if the key belongs to no tenant."""
    tenant, workspace, *_ = (*split_path(key), "", "")
    if not tenant.startswith("tenant=") or not workspace.startswith("workspace="):
        return None
    return Layout(decode_segment(tenant.removeprefix("tenant=")), decode_segment(workspace.removeprefix("workspace=")))


def probe_folder(probe_id: str) -> str:
    """The folder of one run of the boot probe; outside every tenant."""
    return f"_probe/{encode_segment(probe_id)}/"


def signing_keys() -> str:
    """The keys that sign the tokens of all workspaces; outside every tenant."""
    return "_shared/security/keys.json"


STORE_FORMAT: Final = "_shared/format.json"
"""The version in which servers write the records of all workspaces (V3)."""

RESTORING: Final = "_shared/restoring.json"
"""Exists while a backup is being restored; no server starts then."""

RESTORED: Final = "_shared/restored.json"
"""Which backup was restored last, and when."""

LOCATION_CLAIMS: Final = "_shared/locations/"
"""The folder of the location claims, of no tenant: no two tenants may share a place either."""

LOCATIONS_COMPLETE: Final = "_shared/locations_complete.json"
"""Exists once everything that is older than location claims has its claims (P13)."""

_CLAIM: Final = "!.json"
"""The claim of an address. `!` sorts before every character of an encoded segment: it is listed before all below it."""


def backups_folder() -> str:
    """The folder of all backups, in a store of their own or beside catalogs; outside every tenant."""
    return "backups/"


def backup_part(backup_id: str, name: str) -> str:
    return f"{backups_folder()}{encode_segment(backup_id)}/{name}"


def backup_manifest(backup_id: str) -> str:
    """Written last: a backup without it is not complete."""
    return backup_part(backup_id, f"manifest{_JSON}")


def parse_backup(key: str) -> str:
    """The id of the backup that an object belongs to."""
    return decode_segment(key.removeprefix(backups_folder()).partition("/")[0])


def location_claims_below(address: Address) -> str:
    """The folder of the claims of an address and of all addresses below it. Raises Invalid if it is too long."""
    folder = f"{LOCATION_CLAIMS}{'/'.join(map(encode_segment, (address.scheme, address.host, *address.segments)))}/"
    if len(folder) + len(_CLAIM) > KEY_BYTES_MAX:
        raise Invalid(f"Invalid location {str(address)[:100]}…: it is too long, at most {KEY_BYTES_MAX} bytes of key")
    return folder


def location_claim(address: Address) -> str:
    return f"{location_claims_below(address)}{_CLAIM}"


def parse_location_claim(key: str) -> Address:
    if not key.startswith(LOCATION_CLAIMS) or not key.endswith(f"/{_CLAIM}"):
        raise BadRequest(f"key {key}: does not have the form {LOCATION_CLAIMS}…/{_CLAIM}")
    scheme, host, *segments = map(decode_segment, split_path(key[len(LOCATION_CLAIMS) : -len(_CLAIM) - 1]))
    return Address(scheme, host, tuple(segments))


def _parts(key: str, folder: str, *, count: int, suffix: str = _JSON) -> tuple[str, ...]:
    parts = split_path(key[len(folder) : len(key) - len(suffix)])
    if not key.startswith(folder) or not key.endswith(suffix) or len(parts) != count:
        raise BadRequest(f"key {key}: does not have the form {folder}{'/'.join(['…'] * count)}{suffix}")
    return parts


def _folder(path: str) -> Callable[["Layout"], str]:
    return lambda layout: f"{layout.root}{path}/"


def _key(path: str) -> Callable[["Layout", str], str]:
    """The key of the object with a name or id in a folder."""
    return lambda layout, name: f"{layout.root}{path}/{encode_segment(name)}{_JSON}"


def _parse(path: str) -> Callable[["Layout", str], str]:
    return lambda layout, key: decode_segment(_parts(key, f"{layout.root}{path}/", count=1)[0])


def _parse_pair(path: str, suffix: str = _JSON) -> Callable[["Layout", str], tuple[str, str]]:
    def parse(layout: "Layout", key: str) -> tuple[str, str]:
        first, second = _parts(key, f"{layout.root}{path}/", count=2, suffix=suffix)
        return decode_segment(first), decode_segment(second)

    return parse


@dataclass(frozen=True, slots=True, order=True)
class Layout:
    """The keys of one tenant's workspace.

    A method named after a thing returns its key, and one that ends in `_folder` a prefix to list. `parse_…` is the
    reverse and raises BadRequest if the key is of another kind. With `aliases`, both know containers by their names;
    otherwise by their keys.
    """

    tenant: str = "default"
    workspace: str = "default"
    aliases: Aliases = field(default=NO_ALIASES, compare=False, repr=False)

    @property
    def root(self) -> str:
        return _root(self.tenant, self.workspace)

    @property
    def end(self) -> str:
        """Sorts after every key of this workspace and before the keys of the next."""
        return f"{_workspace(self.tenant, self.workspace)}0"  # In byte order, `0` follows `/`.

    def tables_folder(self) -> str:
        """The default folder of the workspace's tables. Without `=`, which engines read as a Hive partition."""
        return f"tables/{encode_segment(self.tenant)}/{encode_segment(self.workspace)}/"

    # Catalogs, namespaces and names: the source of truth.

    catalogs_folder = _folder("catalogs")
    all_namespaces_folder = _folder("namespaces")
    all_names_folder = _folder("names")

    def catalog(self, name: str) -> str:
        return f"{self.catalogs_folder()}{encode_segment(self._keys(name)[0])}{_JSON}"

    def parse_catalog(self, key: str) -> str:
        (found,) = _parts(key, self.catalogs_folder(), count=1)
        return self.aliases.name_path((decode_segment(found),))[0]

    def namespaces_folder(self, catalog: str) -> str:
        return f"{self.all_namespaces_folder()}{encode_segment(self._keys(catalog)[0])}/"

    def namespace(self, namespace: Namespace) -> str:
        levels = self._keys(*namespace)[1]
        return f"{self.namespaces_folder(namespace.catalog)}{encode_levels(levels)}{_JSON}"

    def namespaces_below(self, namespace: Namespace) -> str:
        """The common prefix of the keys of all namespaces below this one, and of no other key."""
        deeper = encode_levels((*self._keys(*namespace)[1], "x"))
        return f"{self.namespaces_folder(namespace.catalog)}{deeper.removesuffix('x')}"

    def parse_namespace(self, key: str) -> Namespace:
        catalog, namespace = _parts(key, self.all_namespaces_folder(), count=2)
        return self.aliases.names_of(Namespace(decode_segment(catalog), decode_levels(namespace)))

    def names_folder(self, place: Namespace | Identifier) -> str:
        """The folder of the names in a namespace, or in the namespace of an identifier."""
        catalog, levels = self._keys(place.catalog, place.levels)
        return f"{self.all_names_folder()}{encode_segment(catalog)}/{encode_levels(levels)}/"

    def name(self, identifier: Identifier) -> str:
        return f"{self.names_folder(identifier)}{encode_segment(identifier.name)}{_JSON}"

    def parse_name(self, key: str) -> Identifier:
        return self._identifier(*_parts(key, self.all_names_folder(), count=3))

    def _keys(self, catalog: str, levels: tuple[str, ...] = ()) -> tuple[str, tuple[str, ...]]:
        return self.aliases.keys_of(Namespace(catalog, levels)) if self.aliases else (catalog, levels)

    def _identifier(self, catalog: str, levels: str, name: str) -> Identifier:
        found = Identifier(decode_segment(catalog), decode_levels(levels), decode_segment(name))
        return self.aliases.names_of(found)

    # Tables and views, by uuid.

    pointers_folder = _folder("iceberg_pointers")
    pointer = _key("iceberg_pointers")
    parse_pointer = _parse("iceberg_pointers")

    delta_tables_folder = _folder("delta_tables")
    delta_table = _key("delta_tables")
    parse_delta_table = _parse("delta_tables")

    delta_stages_folder = _folder("delta_staged")
    delta_stage = _key("delta_staged")
    parse_delta_stage = _parse("delta_staged")

    # Objects that only the Unity Catalog API has.

    # Volumes, functions and registered models.
    securables_folder = _folder("securables")
    securable = _key("securables")
    users_folder = _folder("unity/users")
    user = _key("unity/users")
    all_model_versions_folder = _folder("model_versions")

    def model_versions_folder(self, model_uuid: str) -> str:
        return f"{self.all_model_versions_folder()}{encode_segment(model_uuid)}/"

    def model_version(self, model_uuid: str, version: int) -> str:
        """Zero-padded: the keys sort by version."""
        return f"{self.model_versions_folder(model_uuid)}{version:019d}{_JSON}"

    def metastore(self) -> str:
        return f"{self.root}unity/metastore.json"

    def storage_registry(self) -> str:
        """Credentials and external locations: one object, because they are checked against each other."""
        return f"{self.root}unity/storage.json"

    # Principals, groups and grants: one manifest, and immutable segments.
    security_segments_folder = _folder("security/segments")
    security_segment = _key("security/segments")
    parse_security_segment = _parse("security/segments")

    # Maintenance policies, by the id of the workspace, catalog, namespace or table.
    policies_folder = _folder("policies")
    policy = _key("policies")
    parse_policy = _parse("policies")

    # Grants of releases without a manifest, by the type and id of the securable.
    grants_folder = _folder("grants")
    parse_grants = _parse_pair("grants")

    def security_manifest(self) -> str:
        return f"{self.root}security/manifest.json"

    # Requests in progress.

    commit_claims_folder = _folder("iceberg_idempotency")
    claims_folder = _folder("idempotency")
    stages_folder = _folder("iceberg_staged")
    transactions_folder = _folder("iceberg_transactions")
    transaction = _key("iceberg_transactions")
    parse_transaction = _parse("iceberg_transactions")

    def commit_claims_of(self, table_uuid: str) -> str:
        return f"{self.commit_claims_folder()}{encode_segment(table_uuid)}/"

    def commit_claim(self, table_uuid: str, key_hash: str) -> str:
        return f"{self.commit_claims_of(table_uuid)}{_sharded(key_hash)}{_JSON}"

    def claim(self, operation: str, key_hash: str) -> str:
        return f"{self.claims_folder()}{encode_segment(operation)}/{_sharded(key_hash)}{_JSON}"

    def stage(self, identifier: Identifier, table_uuid: str) -> str:
        catalog, levels = self._keys(identifier.catalog, identifier.levels)
        scope = f"{encode_segment(catalog)}/{encode_levels(levels)}/{encode_segment(identifier.name)}"
        return f"{self.stages_folder()}{scope}/{encode_segment(table_uuid)}{_JSON}"

    def parse_stage(self, key: str) -> tuple[Identifier, str]:
        *name, table_uuid = _parts(key, self.stages_folder(), count=4)
        return self._identifier(*name), decode_segment(table_uuid)

    # Events.

    def events_folder(self, date: str | None = None) -> str:
        return f"{self.root}events/{encode_segment(date)}/" if date else f"{self.root}events/"

    def receipt(self, date: str, family: EventFamily, commit_key: str) -> str:
        return f"{self.events_folder(date)}{family}/{COMMITTED}/{encode_segment(commit_key)}{_JSON}"

    def parse_receipt(self, key: str) -> ReceiptKey:
        return ReceiptKey(*map(decode_segment, _parts(key, self.events_folder(), count=4)))

    # Subscriptions to events, and how far each was served.

    subscriptions_folder = _folder("subscriptions")
    subscription = _key("subscriptions")
    parse_subscription = _parse("subscriptions")
    deliveries_folder = _folder("deliveries")

    def delivery_cursor(self, subscription_id: str) -> str:
        return f"{self.deliveries_folder()}{encode_segment(subscription_id)}/cursor{_JSON}"

    def dead_letters_folder(self, subscription_id: str) -> str:
        return f"{self.deliveries_folder()}{encode_segment(subscription_id)}/dead/"

    def dead_letter(self, subscription_id: str, event_id: str) -> str:
        return f"{self.dead_letters_folder(subscription_id)}{encode_segment(event_id)}{_JSON}"

    def parse_delivery(self, key: str) -> str:
        """The id of the subscription that a cursor or a dead letter belongs to."""
        folder = self.deliveries_folder()
        if not key.startswith(folder) or not key.endswith(_JSON):
            raise BadRequest(f"key {key}: does not have the form {folder}…/…{_JSON}")
        return decode_segment(split_path(key[len(folder) : -len(_JSON)])[0])

    # The audit trail: batches of records, by the day on which they began.

    def audit_folder(self, date: str | None = None) -> str:
        return f"{self.root}audit/{encode_segment(date)}/" if date else f"{self.root}audit/"

    def audit(self, date: str, batch_id: str) -> str:
        return f"{self.audit_folder(date)}{encode_segment(batch_id)}{_AUDIT_LINES}"

    def parse_audit(self, key: str) -> tuple[str, str]:
        """The date and the id of a batch."""
        date, batch_id = _parts(key, self.audit_folder(), count=2, suffix=_AUDIT_LINES)
        return decode_segment(date), decode_segment(batch_id)

    # Lineage: batches of OpenLineage events, by the day on which they arrived.

    def lineage_folder(self, date: str | None = None) -> str:
        return f"{self.root}lineage/{encode_segment(date)}/" if date else f"{self.root}lineage/"

    def lineage(self, date: str, batch_id: str) -> str:
        return f"{self.lineage_folder(date)}{encode_segment(batch_id)}{_LINEAGE_BATCH}"

    parse_lineage = _parse_pair("lineage", suffix=_LINEAGE_BATCH)

    # Derived data, which can be rebuilt.

    all_index_segments_folder = _folder("index/segments")
    parse_index_segment = _parse_pair("index/segments")  # The hash of the scope and the id of the segment.
    parse_mark = _parse_pair("index/marks", suffix="")

    def list_index(self, scope: Scope) -> str:
        catalog, levels = encode_segment(scope.catalog), encode_levels(scope.levels)
        match scope.collection:
            case "catalogs":
                path = "catalogs"
            case "schemas":
                path = f"namespaces/{catalog}/{levels}" if scope.levels else f"schemas/{catalog}"
            case "tables":
                path = f"tables/{catalog}/{levels}"
            case _:
                assert_never(scope.collection)
        return f"{self.root}index/{path}{_INDEX_JSON}"

    def index_segments_folder(self, scope: Scope) -> str:
        return f"{self.all_index_segments_folder()}{encode_segment(scope.hash)}/"

    def index_segment(self, scope: Scope, segment_id: str) -> str:
        return f"{self.index_segments_folder(scope)}{encode_segment(segment_id)}{_JSON}"

    def marks_folder(self, scope: str | None = None) -> str:
        return f"{self.root}index/marks/{encode_segment(scope)}/" if scope is not None else f"{self.root}index/marks/"

    def mark(self, scope: str, operation_id: str) -> str:
        return f"{self.marks_folder(scope)}{encode_segment(operation_id)}"

    # The pipeline's published files and operational records.

    core_snapshots_folder = _folder("core/snapshots")
    purge_orders_folder = _folder("operational/purge")
    parse_purge_order = _parse_pair("operational/purge")
    maintenance_folder = _folder("operational/maintenance")
    parse_maintenance = _parse_pair("operational/maintenance")

    # The latest request for the maintenance of each table, by its uuid.
    maintenance_requests_folder = _folder("operational/maintenance_requests")
    maintenance_request = _key("operational/maintenance_requests")
    parse_maintenance_request = _parse("operational/maintenance_requests")

    # Files of tables that nothing refers to, by the uuid of the table: to be deleted, and deleted.
    condemned_folder = _folder("operational/condemned")
    condemned = _key("operational/condemned")
    parse_condemned = _parse("operational/condemned")
    swept_folder = _folder("operational/swept")
    swept = _key("operational/swept")
    parse_swept = _parse("operational/swept")

    def core_manifest(self) -> str:
        return f"{self.root}core/manifest.json"

    def core_snapshot(self, attempt_id: str, file_name: str) -> str:
        return f"{self.core_snapshots_folder()}{encode_segment(attempt_id)}/{encode_segment(file_name)}"

    def operational_folder(self, kind: str) -> str:
        return f"{self.root}operational/{encode_segment(kind)}/"

    def purge_orders_of(self, table_uuid: str) -> str:
        """The common prefix of the keys of a table's purge orders, and of no other key."""
        return f"{self.purge_orders_folder()}{encode_segment(table_uuid)}/"

    def purge_order(self, table_uuid: str, drop: str) -> str:
        return f"{self.purge_orders_of(table_uuid)}{encode_segment(drop)}{_JSON}"

    def maintenance_run(self, run: str) -> str:
        """The folder of a maintenance run."""
        return f"{self.maintenance_folder()}{encode_segment(run)}/"

    def maintenance(self, run: str, name: str) -> str:
        """An object of a maintenance run."""
        return f"{self.maintenance_run(run)}{encode_segment(name)}{_JSON}"

    def operational(self, kind: str, name: str) -> str:
        return f"{self.operational_folder(kind)}{encode_segment(name)}{_JSON}"


def _workspace(tenant: str, workspace: str) -> str:
    return f"tenant={encode_segment(tenant)}/workspace={encode_segment(workspace)}"


@functools.lru_cache(_ROOTS_MAX)
def _root(tenant: str, workspace: str) -> str:
    return f"{_workspace(tenant, workspace)}/_catalog/"


def _sharded(key_hash: str) -> str:
    """Spread claims over 256 folders, so that each stays small enough to list."""
    return f"{encode_segment(key_hash[:2])}/{encode_segment(key_hash)}"
