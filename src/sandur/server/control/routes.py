"""The routes of Sandur's own API."""

from typing import Final

from sandur.catalog import privileges
from sandur.catalog.privileges import AUTHENTICATED, OPEN, Needs
from sandur.operations.identity.principals import OTHERS
from sandur.server.app import Dialect, Route, Router
from sandur.server.control import audit, grants, groups, principals, restrictions, stages
from sandur.server.control.errors import ERRORS

_ADMINISTRATOR: Final = Needs("metastore", privileges.MANAGED)
_SELF: Final = Needs("caller", further={OTHERS: privileges.MANAGED})
_PRINCIPAL: Final = "/principals/{name}"
_RESTRICTIONS: Final = "/restrictions/{full_name}"
_TAGS: Final = "/tags/{securable_type}/{full_name}"
_GRANTS: Final = "/grants/{securable_type}/{full_name}"

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
    Route("GET", "/stages", "listStages", stages.list_stages, _ADMINISTRATOR),
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
