"""Every route of every API decides as the evaluator does, for random worlds."""

import itertools
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandur.catalog.security.manifest import (
    GROUPS,
    Authority,
    Caller,
    Group,
    ObjectGrants,
    SecurityManifest,
    SecuritySegment,
    grants_shard,
    shard_of,
)
from sandur.catalog.security.privileges import Chain, Link, Rule, SecurableType
from sandur.server.control.routes import ROUTES as SANDUR
from sandur.server.delta_rest.routes import ROUTES as DELTA
from sandur.server.iceberg_rest.routes import ROUTES as ICEBERG
from sandur.server.ui.routes import ROUTES as UI
from sandur.server.unity_rest.routes import CLASSIC_ROUTES, CONTROL_ROUTES
from tests.authorization import evaluator, worlds
from tests.authorization.evaluator import METASTORE, RULES, USE, Check, Grant, Kind, World

APIS: Final = {
    "iceberg": ICEBERG,
    "unity": CLASSIC_ROUTES,
    "control": CONTROL_ROUTES,
    "delta": DELTA,
    "sandur": SANDUR,
    "ui": UI,
}

LOCATED_TABLE: Final = {"location": "use location for a table"}
LOCATED_NAMESPACE: Final = {"location": "use location for a namespace"}
COMMIT: Final = {
    "": "update table", "relocate": "move table", "create": "create table", "files": "read files", **LOCATED_TABLE,
}  # fmt: skip
REGISTER_TABLE: Final = {
    "": "create table", "files": "read files", "overwrite": "overwrite table", **LOCATED_TABLE,
}  # fmt: skip
READ_TABLE_DATA: Final = {"": "read table", "write": "write table"}
WITH_CREDENTIALS: Final = {"credentials": "read table"}
READ_PATH: Final = {"": "read files", "write": "write files", "create": "use location for a table"}
STAGE_TABLE: Final = {"": "create table"}
CREATE_TABLE: Final = {"": "create table", **LOCATED_TABLE}
DROP_TABLE: Final = {"": "drop table", "purge": "drop table"}
OF_OTHERS: Final = {"others": "manage principals"}
DESCRIBE_OBJECT: Final = {
    "table": "load table",
    "view": "load view",
    "volume": "load volume",
    "function": "load function",
    "model": "load model",
}

UNDROP: Final = {
    "": "drop table",
    "table": "create table",
    "view": "create view",
    "volume": "create volume",
    "function": "create function",
    "model": "create model",
}
ACTIONS: Final = {
    "createNamespace": {"": "create namespace", **LOCATED_NAMESPACE},
    "updateProperties": {"": "update namespace", **LOCATED_NAMESPACE},
    "dropNamespace": {"": "drop namespace"},
    "createView": {"": "create view", **LOCATED_TABLE},
    "replaceView": {"": "replace view", "relocate": "replace view", **LOCATED_TABLE},
    "renameTable": {"": "drop table", "destination": "create table"},
    "renameView": {"": "drop view", "destination": "create view"},
    "dropTable": {"": "drop table", "purge": "delete files"},
    **{f"drop{kind.capitalize()}": {"": f"drop {kind}"} for kind in ("view", "volume", "function", "model")},
    "undrop": UNDROP,
    **dict.fromkeys(("restoreTable", "createReference", "removeReference", "updateTable", "commentTable"), COMMIT),
    "requestMaintenance": {"": "update table"},
    "restoreDeltaTable": {"": "update table"},
    "commentCatalog": {"": "update catalog"},
    "commentSchema": {"": "update namespace", **LOCATED_NAMESPACE},
    "commentView": {"": "replace view", "relocate": "replace view", **LOCATED_TABLE},
    "commentVolume": {"": "update volume"},
    "commentRegisteredModel": {"": "update model"},
    **{key: {"": "change grants"} for key in ("updateGrants", "changeOwner", "updateTags", "replacePolicy")},
}
"""The actions of the web UI. The form of each needs the same."""

# The operation of the evaluator for each situation of a route; "" is the rule that always applies.
OPERATIONS: Final[dict[str, dict[str, dict[str, str]]]] = {
    "iceberg": {
        "getConfig": {"warehouse": "config"},
        "listNamespaces": {"": "list"},
        "createNamespace": {"": "create namespace", **LOCATED_NAMESPACE},
        "loadNamespaceMetadata": {"": "load namespace"},
        "namespaceExists": {"": "load namespace"},
        "dropNamespace": {"": "drop namespace"},
        "updateProperties": {"": "update namespace", **LOCATED_NAMESPACE},
        "listTables": {"": "list"},
        "createTable": {**CREATE_TABLE, **WITH_CREDENTIALS},
        "registerTable": {**REGISTER_TABLE, **WITH_CREDENTIALS},
        "loadTable": {"": "load table"},
        "loadCredentials": {"": "read table"},
        "updateTable": COMMIT,
        "dropTable": {"": "drop table", "purge": "delete files"},
        "tableExists": {"": "load table"},
        "unregisterTable": {"": "drop table"},
        "planTableScan": {"": "plan scan", **WITH_CREDENTIALS},
        "fetchPlanningResult": {"": "plan scan", **WITH_CREDENTIALS},
        "cancelPlanning": {"": "plan scan"},
        "fetchScanTasks": {"": "plan scan"},
        "reportMetrics": {"": "report metrics"},
        "signRequest": {**READ_TABLE_DATA, "staged": "create table"},
        "signS3Request": READ_TABLE_DATA,
        "renameTable": {"": "drop table", "destination": "create table"},
        "commitTransaction": {**COMMIT, "view": "replace view", "create view": "create view"},
        "listViews": {"": "list"},
        "createView": {"": "create view", **LOCATED_TABLE},
        "loadView": {"": "load view"},
        "replaceView": {"": "replace view", "relocate": "replace view", **LOCATED_TABLE},
        "dropView": {"": "drop view"},
        "viewExists": {"": "load view"},
        "renameView": {"": "drop view", "destination": "create view"},
        "registerView": {"": "create view", "files": "read files", "overwrite": "replace view", **LOCATED_TABLE},
        "listFunctions": {"": "list"},
        "loadFunction": {"": "load function"},
        "tableSchemas": {"": "load table"},
        "tableGovernance": {"": "load table"},
        "tablePartitionSpecs": {"": "load table"},
        "tableSnapshots": {"": "load table"},
    },
    "unity": {
        "createCatalog": {"": "create catalog", **LOCATED_NAMESPACE},
        "listCatalogs": {"": "list"},
        "getCatalog": {"": "load catalog"},
        "updateCatalog": {"": "update catalog", "destination": "create catalog"},
        "deleteCatalog": {"": "drop catalog"},
        "createSchema": {"": "create namespace", **LOCATED_NAMESPACE},
        "listSchemas": {"": "list"},
        "getSchema": {"": "load namespace"},
        "updateSchema": {"": "update namespace", "destination": "create namespace"},
        "deleteSchema": {"": "drop namespace"},
        "createStagingTable": STAGE_TABLE,
        "commit": {"": "update table"},
        "getCommits": {"": "load table"},
        "createTable": {**CREATE_TABLE, "view": "create view"},
        "listTables": {"": "list"},
        "getTable": {"": "load table"},
        "deleteTable": DROP_TABLE,
        "createVolume": {"": "create volume", "location": "use location for a volume"},
        "listVolumes": {"": "list"},
        "getVolume": {"": "load volume"},
        "updateVolume": {"": "update volume", "destination": "create volume"},
        "deleteVolume": {"": "drop volume"},
        "createFunction": {"": "create function"},
        "listFunctions": {"": "list"},
        "getFunction": {"": "load function"},
        "deleteFunction": {"": "drop function"},
        "createRegisteredModel": {"": "create model"},
        "listRegisteredModels": {"": "list"},
        "createModelVersion": {"": "update model"},
        "getRegisteredModel": {"": "load model"},
        "updateRegisteredModel": {"": "update model", "destination": "create model"},
        "deleteRegisteredModel": {"": "drop model"},
        "listModelVersions": {"": "load model"},
        "getModelVersion": {"": "load model"},
        "updateModelVersion": {"": "update model"},
        "deleteModelVersion": {"": "update model"},
        "finalizeModelVersion": {"": "update model"},
        "generateTemporaryTableCredentials": {**READ_TABLE_DATA, "stage": "create table"},
        "generateTemporaryVolumeCredentials": {"": "read volume", "write": "write volume"},
        "generateTemporaryModelVersionCredentials": {"": "read model", "write": "write model"},
        "generateTemporaryPathCredentials": READ_PATH,
        "getPermissions": {"all": "read grants"},
        "updatePermissions": {"": "change grants"},
        "createCredential": {"": "create credential"},
        "listCredentials": {"": "list"},
        "getCredential": {"": "load credential"},
        "updateCredential": {"": "update credential"},
        "deleteCredential": {"": "drop credential"},
        "createExternalLocation": {"": "create external location", "credential": "use credential"},
        "listExternalLocations": {"": "list"},
        "getExternalLocation": {"": "load external location"},
        "updateExternalLocation": {"": "update external location", "credential": "use credential"},
        "deleteExternalLocation": {"": "drop external location"},
    },
    "control": {
        "createUser": {"": "manage principals"},
        "listUsers": {"": "manage principals"},
        "patchUser": {"": "manage principals"},
        "createGroup": {"": "manage principals"},
        "listGroups": {"": "manage principals"},
        "getGroup": {"": "manage principals"},
        "updateGroup": {"": "manage principals"},
        "patchGroup": {"": "manage principals"},
        "deleteGroup": {"": "manage principals"},
        "getUser": {"": "manage principals"},
        "updateUser": {"": "manage principals"},
        "deleteUser": {"": "manage principals"},
    },
    "delta": {
        "getConfig": {"": "config"},
        "createStagingTable": STAGE_TABLE,
        "createTable": CREATE_TABLE,
        "loadTable": {"": "load table"},
        "updateTable": {"": "update table"},
        "deleteTable": DROP_TABLE,
        "tableExists": {"": "load table"},
        "renameTable": {"": "drop table", "destination": "create table"},
        "reportMetrics": {"": "report metrics"},
        "getTableCredentials": READ_TABLE_DATA,
        "getStagingTableCredentials": {"": "create table", "stage": "create table"},
        "getTemporaryPathCredentials": READ_PATH,
    },
    "sandur": {
        "createPrincipal": {"": "manage principals"},
        "listPrincipals": {"": "manage principals"},
        "loadPrincipal": OF_OTHERS,
        "updatePrincipal": {"": "manage principals"},
        "dropPrincipal": {"": "manage principals"},
        "setGroups": {"": "manage principals"},
        "revokeTokens": {"": "manage principals"},
        "createSecret": OF_OTHERS,
        "listSecrets": OF_OTHERS,
        "removeSecret": OF_OTHERS,
        "createApiKey": OF_OTHERS,
        "listApiKeys": OF_OTHERS,
        "removeApiKey": OF_OTHERS,
        "loadAudit": {"": "manage principals"},
        "listStages": {"": "manage principals"},
        "undrop": UNDROP,
        "listDropped": {"": "list"},
        "listSubscriptions": OF_OTHERS,
        "loadSubscription": OF_OTHERS,
        "updateSubscription": OF_OTHERS,
        "deleteSubscription": OF_OTHERS,
        "rotateSubscriptionSecret": OF_OTHERS,
        "replaySubscription": OF_OTHERS,
        "listDeadLetters": OF_OTHERS,
        "listJobs": {"": "manage principals"},
        "listContents": {"": "list"},
        "listCatalogContents": {"": "list"},
        "listNamespaceContents": {"": "list"},
        "describeCatalog": {"": "load catalog"},
        "describeNamespace": {"": "load namespace"},
        "describeObject": DESCRIBE_OBJECT,
        "loadHistory": {"": "load table"},
        "loadChanges": {"": "load table"},
        "previewRestore": {"": "update table"},
        "restoreTable": {"": "update table"},
        "defineTable": CREATE_TABLE,
        "preview": {"": "read table"},
        "createGroup": {"": "manage principals"},
        "listGroups": {"": "manage principals"},
        "loadGroup": {"": "manage principals"},
        "setMembers": {"": "manage principals"},
        "changeMembers": {"": "manage principals"},
        "dropGroup": {"": "manage principals"},
        "loadGrants": {"all": "read grants"},
        "updateGrants": {"": "change grants"},
        "loadEffectivePrivileges": {"all": "read grants"},
        "changeOwner": {"": "change grants"},
        "loadTags": {},
        "loadLineage": {},
        "search": {},
        "updateTags": {"": "change grants"},
        "loadPolicy": {},
        "loadTableHealth": {},
        "loadMaintenancePlan": {},
        "listMaintenanceOperations": {},
        "listMaintenanceRequests": {},
        "requestMaintenance": {"": "update table"},
        "replacePolicy": {"": "change grants"},
        "updatePolicy": {"": "change grants"},
        "removePolicy": {"": "change grants"},
        "loadRestrictions": {"": "change grants"},
        "setRestrictions": {"": "change grants"},
        "removeRestrictions": {"": "change grants"},
    },
    "ui": {
        "showHome": {"": "list"},
        "showSearch": {},
        "showActivity": {},
        "showJobs": {"": "manage principals"},
        "showMaintenance": {},
        "showAudit": {"": "manage principals"},
        "showSubscriptions": OF_OTHERS,
        "showSubscription": OF_OTHERS,
        "showPolicies": {},
        "showCatalog": {"": "load catalog"},
        "showNamespace": {"": "load namespace"},
        **{f"show{kind}": DESCRIBE_OBJECT for kind in ("Table", "View", "Volume", "Function", "Model")},
        **{f"show{kind}Grants": {"all": "read grants"} for kind in ("Table", "View", "Volume", "Function", "Model")},
        **{f"show{part}": {"": "load table"} for part in ("Snapshots", "Timeline", "Version", "Diff", "Health")},
        "showViewTimeline": {"": "load table"},
        "showFiles": {"": "plan scan"},
        "showPreview": {"": "read table"},
        "showLineage": {},
        "showViewLineage": {},
        "listDropped": {"": "list"},
        **ACTIONS,
        **{f"show{name[0].upper()}{name[1:]}": situations for name, situations in ACTIONS.items()},
    },
}
# The table of privileges says nothing about these: they are open, or need only a token.
NOT_COMPARED: Final = {
    "iceberg": {"getToken"},
    "unity": {"getMetastoreSummary"},
    "control": {"getSelf", "getUnityToken", "logout"},
    "delta": set[str](),
    "sandur": {"loadSelf", "publishKeys", "describeLogin", "loadEvents", "streamEvents", "createSubscription"},
    "ui": {
        "loadStaticFile",
        "showServer",
        "showMe",
        "showId",
        "showLogin",
        "logIn",
        "endProviderLogin",
        "logout",
    },
}

TYPES: Final[dict[Kind, SecurableType]] = {
    Kind.METASTORE: "metastore",
    Kind.CATALOG: "catalog",
    Kind.NAMESPACE: "schema",
    Kind.TABLE: "table",
    Kind.VIEW: "table",
    Kind.VOLUME: "volume",
    Kind.FUNCTION: "function",
    Kind.MODEL: "registered_model",
    Kind.EXTERNAL_LOCATION: "external_location",
    Kind.CREDENTIAL: "credential",
}


def compared_rules() -> dict[tuple[str, Rule], str]:
    """Each operation of the evaluator with each rule that a route has for it, and one of those routes."""
    found: dict[tuple[str, Rule], str] = {}
    for api, routes in APIS.items():
        for route in routes:
            for situation, operation in OPERATIONS[api].get(route.operation, {}).items():
                rule = route.needs.further[situation] if situation else route.needs.rule
                found.setdefault((operation, rule), f"{api} {route.operation} {situation}")
    return found


COMPARED: Final = compared_rules()


def authority_of(world: World) -> Authority:
    """The world as the server stores it. Names stand for ids."""
    above = {one.id: tuple(link.id for link in world.chain(one.id)[1:]) for one in world.objects}
    shards: dict[str, dict[str, ObjectGrants]] = {}
    for one in world.objects:
        subjects: dict[str, tuple[str, ...]] = {}
        for grant in sorted(world.grants, key=str):
            if grant.object_id == one.id:
                subjects[grant.subject] = (*subjects.get(grant.subject, ()), grant.privilege)
        if subjects:
            granted = ObjectGrants(type=TYPES[one.kind], subjects=subjects, above=above[one.id])
            shards.setdefault(grants_shard(one.id), {})[one.id] = granted
    groups = {
        name: Group(
            id=name, name=name, members=tuple(member for member, group in sorted(world.memberships) if group == name)
        )
        for name in (*worlds.GROUPS, *worlds.ROLES)
    }
    manifest = SecurityManifest(
        number=1, metastore_id=METASTORE, owner=world.by_id[METASTORE].owner or "", event_id="event"
    )
    segments = {name: SecuritySegment(grants=grants) for name, grants in shards.items()}
    segments[GROUPS] = SecuritySegment(groups=groups)
    return Authority(manifest, "version", {name: shard_of(segment) for name, segment in segments.items()})


def chain_of(world: World, object_id: str) -> Chain:
    links = [Link(one.id, TYPES[one.kind], one.id, one.owner or "") for one in reversed(world.chain(object_id))]
    return tuple(links)


@pytest.mark.parametrize("api", APIS)
def test_every_route_is_compared_in_every_situation(api: str) -> None:
    declared = {route.operation: {"", *route.needs.further} for route in APIS[api]}

    assert set(declared) == set(OPERATIONS[api]) | NOT_COMPARED[api]
    missing = {name: declared[name] - {"", *situations} for name, situations in OPERATIONS[api].items()}
    assert {name: situations for name, situations in missing.items() if situations} == {}


def differences(world: World, principal: str, operations: Collection[str], object_ids: Collection[str]) -> list[str]:
    authority = authority_of(world)
    caller = Caller(principal, principal)
    found = []
    for (operation, rule), route in COMPARED.items():
        if operation not in operations:
            continue
        for object_id in set(worlds.ids_of(*RULES[operation].kinds)).intersection(object_ids):
            expected = evaluator.decide(world, principal, Check(operation, object_id))
            outcome = authority.decide(caller, chain_of(world, object_id), rule).outcome
            if outcome != expected:
                found.append(f"{operation} on {object_id} ({route}): {outcome}, expected {expected}")
    return found


@settings(deadline=None, max_examples=150)
@given(worlds.worlds(), st.sampled_from(worlds.PRINCIPALS))
def test_every_route_decides_as_the_evaluator(world: World, principal: str) -> None:
    assert differences(world, principal, RULES, world.by_id) == []


def worlds_around(operation: str, object_id: str) -> Iterator[World]:
    """Every combination of the rights that matter for one operation on one object, for the principal "ann"."""
    plain = worlds.world_owned_by("root")
    chain = [one.id for one in plain.chain(object_id)]
    use = [(USE[plain.by_id[one].kind], one) for one in chain if plain.by_id[one].kind in USE]
    needed = sorted({(privilege, object_id) for row in RULES[operation].any_of for privilege in row})
    rights = [*use, *needed, ("BROWSE", object_id)]
    for count in range(len(rights) + 1):
        for chosen in itertools.combinations(rights, count):
            granted = frozenset(Grant("ann", *right) for right in chosen)
            yield replace(plain, grants=granted)
            for place in chain:
                yield replace(plain, grants=granted | {Grant("ann", "MANAGE", place)})
                yield replace(worlds.world_owned_by("root", {place: "ann"}), grants=granted)


@pytest.mark.parametrize("operation", sorted({operation for operation, _ in COMPARED}))
def test_every_right_that_matters_is_needed_as_the_evaluator_says(operation: str) -> None:
    ids = sorted(worlds.ids_of(*RULES[operation].kinds), key=lambda one: one.count("."))

    for object_id in {ids[0], ids[-1], *(one for one in ids if one == "main.sales")}:
        for world in worlds_around(operation, object_id):
            assert differences(world, "ann", (operation,), (object_id,)) == []


@settings(deadline=None)
@given(worlds.worlds(), st.sampled_from(worlds.PRINCIPALS))
def test_lists_contain_what_the_evaluator_shows(world: World, principal: str) -> None:
    authority = authority_of(world)

    for one in world.objects:
        if one.parent is not None:
            is_listed = one.id in evaluator.visible_children(world, principal, one.parent)
            assert authority.sees(Caller(principal, principal), chain_of(world, one.id)) == is_listed


def test_a_single_grant_shows_what_the_evaluator_says() -> None:
    plain = worlds.world_owned_by("root")
    wrong = []
    for granted in plain.objects:
        for privilege in worlds.GRANTABLE[granted.kind]:
            world = replace(plain, grants=frozenset((Grant("ann", privilege, granted.id),)))
            authority = authority_of(world)
            wrong += [
                f"{privilege} on {granted.id} for {one.id}"
                for one in world.objects
                if authority.sees(Caller("ann", "ann"), chain_of(world, one.id))
                != evaluator.is_visible(world, "ann", one.id)
            ]

    assert wrong == []
