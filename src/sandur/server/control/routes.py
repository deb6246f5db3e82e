"""The routes of Sandur's own API."""

from typing import Final

from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import AUTHENTICATED, OPEN, Needs
from sandur.server.app import Dialect, Route, Router
from sandur.server.control import (
    audit,
    browse,
    events,
    grants,
    groups,
    lineage,
    policies,
    principals,
    restrictions,
    subscriptions,
    tables,
)
from sandur.server.control.errors import ERRORS
from sandur.server.needs import (
    ADMINISTER,
    COMMIT_DELTA_TABLE,
    DESCRIBE_OBJECT,
    OWN_OR_ADMINISTER,
    REQUEST_MAINTENANCE,
)

_ADMINISTRATOR: Final = ADMINISTER
_SELF: Final = OWN_OR_ADMINISTER
_UNDROP: Final = Needs(
    "table",
    privileges.MANAGED,
    {
        "table": privileges.CREATE_TABLE,
        "view": privileges.CREATE_VIEW,
        "volume": privileges.CREATE_VOLUME,
        "function": privileges.CREATE_FUNCTION,
        "model": privileges.CREATE_MODEL,
    },
)
_PRINCIPAL: Final = "/principals/{name}"
_RESTRICTIONS: Final = "/restrictions/{full_name}"
_TAGS: Final = "/tags/{securable_type}/{full_name}"
_SUBSCRIPTIONS: Final = "/subscriptions"
_SUBSCRIPTION: Final = _SUBSCRIPTIONS + "/{id}"
_POLICY: Final = "/policies/{securable_type}/{full_name}"
_REQUEST: Final = "/maintenance/requests/{full_name}"
_GRANTS: Final = "/grants/{securable_type}/{full_name}"

_CONTENTS: Final = "/contents"
_OBJECT: Final = "/objects/{catalog}/{namespace}/{name}"
_READ_TABLE: Final = Needs("table", privileges.READ_TABLE)
_CREATE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, {"location": privileges.CREATE_EXTERNAL_TABLE})

ROUTES: Final = (
    Route("GET", "/me", "loadSelf", principals.load_self, AUTHENTICATED),
    Route("GET", "/login", "describeLogin", principals.describe_login, OPEN),
    Route("GET", "/jwks.json", "publishKeys", principals.publish_keys, OPEN),
    Route("POST", "/principals", "createPrincipal", principals.create_principal, _ADMINISTRATOR),
    Route("GET", "/principals", "listPrincipals", principals.list_principals, _ADMINISTRATOR),
    Route("GET", _PRINCIPAL, "loadPrincipal", principals.load_principal, _SELF),
    Route("PATCH", _PRINCIPAL, "updatePrincipal", principals.update_principal, _ADMINISTRATOR),
    Route("DELETE", _PRINCIPAL, "dropPrincipal", principals.drop_principal, _ADMINISTRATOR),
    Route("PUT", _PRINCIPAL + "/groups", "setGroups", principals.set_groups, _ADMINISTRATOR),
    Route("POST", _PRINCIPAL + "/revoke-tokens", "revokeTokens", principals.revoke_tokens, _ADMINISTRATOR),
    Route("POST", _PRINCIPAL + "/secrets", "createSecret", principals.create_secret, _SELF),
    Route("GET", _PRINCIPAL + "/secrets", "listSecrets", principals.list_secrets, _SELF),
    Route("DELETE", _PRINCIPAL + "/secrets/{id}", "removeSecret", principals.remove_secret, _SELF),
    Route("POST", _PRINCIPAL + "/api-keys", "createApiKey", principals.create_api_key, _SELF),
    Route("GET", _PRINCIPAL + "/api-keys", "listApiKeys", principals.list_api_keys, _SELF),
    Route("POST", "/groups", "createGroup", groups.create_group, _ADMINISTRATOR),
    Route("GET", "/groups", "listGroups", groups.list_groups, _ADMINISTRATOR),
    Route("GET", "/groups/{name}", "loadGroup", groups.load_group, _ADMINISTRATOR),
    Route("PUT", "/groups/{name}/members", "setMembers", groups.set_members, _ADMINISTRATOR),
    Route("PATCH", "/groups/{name}/members", "changeMembers", groups.change_members, _ADMINISTRATOR),
    Route("DELETE", "/groups/{name}", "dropGroup", groups.drop_group, _ADMINISTRATOR),
    Route("GET", _GRANTS, "loadGrants", grants.load_grants, privileges.READ_GRANTS),
    Route("PATCH", _GRANTS, "updateGrants", grants.update_grants, privileges.CHANGE_GRANTS),
    Route(
        "GET",
        "/effective-privileges/{securable_type}/{full_name}",
        "loadEffectivePrivileges",
        grants.load_effective_privileges,
        privileges.READ_GRANTS,
    ),
    Route(
        "PUT",
        "/owners/{securable_type}/{full_name}",
        "changeOwner",
        grants.change_owner,
        privileges.CHANGE_GRANTS,
    ),
    Route("GET", _TAGS, "loadTags", grants.load_tags, Needs("metastore")),
    Route("PATCH", _TAGS, "updateTags", grants.update_tags, privileges.CHANGE_GRANTS),
    Route("GET", _RESTRICTIONS, "loadRestrictions", restrictions.load_restrictions, privileges.CHANGE_GRANTS),
    Route("PUT", _RESTRICTIONS, "setRestrictions", restrictions.set_restrictions, privileges.CHANGE_GRANTS),
    Route("DELETE", _RESTRICTIONS, "removeRestrictions", restrictions.remove_restrictions, privileges.CHANGE_GRANTS),
    Route("GET", _CONTENTS, "listContents", browse.list_catalogs, Needs("metastore")),
    Route("GET", _CONTENTS + "/{catalog}", "listCatalogContents", browse.list_in_catalog, Needs("catalog")),
    Route(
        "GET",
        _CONTENTS + "/{catalog}/{namespace}",
        "listNamespaceContents",
        browse.list_in_namespace,
        Needs("schema"),
    ),
    Route("GET", "/objects/{catalog}", "describeCatalog", browse.describe_catalog, Needs("catalog")),
    Route("GET", "/objects/{catalog}/{namespace}", "describeNamespace", browse.describe_namespace, Needs("schema")),
    Route("GET", _OBJECT, "describeObject", browse.describe_object, DESCRIBE_OBJECT),
    Route("GET", _OBJECT + "/history", "loadHistory", browse.load_history, _READ_TABLE),
    Route("GET", _OBJECT + "/changes", "loadChanges", browse.load_changes, _READ_TABLE),
    Route("GET", _OBJECT + "/restore", "previewRestore", tables.preview_restore, COMMIT_DELTA_TABLE),
    Route("POST", _OBJECT + "/restore", "restoreTable", tables.restore_table, COMMIT_DELTA_TABLE),
    Route("POST", "/tables/{catalog}/{namespace}", "defineTable", browse.create_table, _CREATE_TABLE),
    Route("POST", "/preview", "preview", browse.preview, Needs("tables", privileges.READ_DATA)),
    Route("GET", "/search", "search", browse.search_objects, Needs("metastore")),
    Route("GET", "/jobs", "listJobs", browse.list_jobs, _ADMINISTRATOR),
    Route("GET", _POLICY, "loadPolicy", policies.load_policy, Needs("metastore")),
    Route("PUT", _POLICY, "replacePolicy", policies.replace_policy, privileges.CHANGE_GRANTS),
    Route("PATCH", _POLICY, "updatePolicy", policies.update_policy, privileges.CHANGE_GRANTS),
    Route("DELETE", _POLICY, "removePolicy", policies.remove_policy, privileges.CHANGE_GRANTS),
    Route("GET", "/table-health", "loadTableHealth", policies.load_table_health, Needs("metastore")),
    Route("GET", "/maintenance/plan", "loadMaintenancePlan", policies.load_plan, Needs("metastore")),
    Route("GET", "/maintenance/operations", "listMaintenanceOperations", policies.load_operations, Needs("metastore")),
    Route("GET", "/maintenance/requests", "listMaintenanceRequests", policies.list_requests, Needs("metastore")),
    Route("POST", _REQUEST, "requestMaintenance", policies.request_maintenance, REQUEST_MAINTENANCE),
    Route("GET", "/stages", "listStages", tables.list_stages, _ADMINISTRATOR),
    Route("POST", "/undrop/{kind}/{full_name}", "undrop", tables.undrop_object, _UNDROP),
    Route("GET", "/dropped", "listDropped", tables.list_dropped, Needs("catalog")),
    Route("GET", "/events", "loadEvents", events.load_events, AUTHENTICATED),
    Route("GET", "/events/stream", "streamEvents", events.stream_events, AUTHENTICATED),
    Route("POST", _SUBSCRIPTIONS, "createSubscription", subscriptions.create_subscription, AUTHENTICATED),
    Route("GET", _SUBSCRIPTIONS, "listSubscriptions", subscriptions.list_subscriptions, _SELF),
    Route("GET", _SUBSCRIPTION, "loadSubscription", subscriptions.load_subscription, _SELF),
    Route("PATCH", _SUBSCRIPTION, "updateSubscription", subscriptions.update_subscription, _SELF),
    Route("DELETE", _SUBSCRIPTION, "deleteSubscription", subscriptions.delete_subscription, _SELF),
    Route("POST", _SUBSCRIPTION + "/rotate-secret", "rotateSubscriptionSecret", subscriptions.rotate_secret, _SELF),
    Route("POST", _SUBSCRIPTION + "/replay", "replaySubscription", subscriptions.replay, _SELF),
    Route("GET", _SUBSCRIPTION + "/dead-letters", "listDeadLetters", subscriptions.list_dead_letters, _SELF),
    Route("GET", "/lineage", "loadLineage", lineage.load_lineage_graph, Needs("metastore")),
    Route("GET", "/audit", "loadAudit", audit.load_audit_records, _ADMINISTRATOR),
    Route("DELETE", _PRINCIPAL + "/api-keys/{id}", "removeApiKey", principals.remove_api_key, _SELF),
)

WELL_KNOWN_ROUTES: Final = (Route("GET", "/jwks.json", "publishKeys", principals.publish_keys, OPEN),)

CONTROL: Final = Dialect(
    name="sandur",
    mounts=(b"/api/sandur/v1/", b"/api/sandur"),
    router=Router(ROUTES, unknown_status=404, ignores_trailing_slash=True),
    errors=ERRORS,
)
WELL_KNOWN: Final = Dialect(
    name="well-known",
    mounts=(b"/.well-known/",),
    router=Router(WELL_KNOWN_ROUTES, unknown_status=404),
    errors=ERRORS,
)
