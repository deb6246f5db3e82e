"""The routes of the Unity Catalog API, and of its control API for users and tokens."""

from typing import Final

from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import AUTHENTICATED, OPEN, Needs
from sandur.server import needs
from sandur.server.app import Dialect, Route, Router
from sandur.server.unity_rest import access, catalogs, grants, groups, securables, storage, tables
from sandur.server.unity_rest.errors import ERRORS

_STAGE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE)
_CREATE_TABLE: Final = Needs(
    "schema",
    privileges.CREATE_TABLE,
    {"location": privileges.CREATE_EXTERNAL_TABLE, "view": privileges.CREATE_VIEW},
)
_DROP_TABLE: Final = Needs("table", privileges.MANAGED, {"purge": privileges.MANAGED})
_READ_TABLE: Final = Needs("table", privileges.READ_TABLE)
_READ_MODEL: Final = Needs("registered_model", privileges.EXECUTE)
_MANAGE_MODEL: Final = Needs("registered_model", privileges.MANAGED)

CLASSIC_ROUTES: Final = (
    Route(
        "POST",
        "/catalogs",
        "createCatalog",
        catalogs.create_catalog,
        needs.CREATE_CATALOG,
    ),
    Route("GET", "/catalogs", "listCatalogs", catalogs.list_catalogs, needs.LIST_CATALOGS),
    Route("GET", "/catalogs/{name}", "getCatalog", catalogs.load_catalog, needs.SEE_CATALOG),
    Route("PATCH", "/catalogs/{name}", "updateCatalog", catalogs.update_catalog, needs.CHANGE_CATALOG),
    Route("DELETE", "/catalogs/{name}", "deleteCatalog", catalogs.delete_catalog, needs.MANAGE_CATALOG),
    Route(
        "POST",
        "/schemas",
        "createSchema",
        catalogs.create_schema,
        needs.CREATE_NAMESPACE,
    ),
    Route("GET", "/schemas", "listSchemas", catalogs.list_schemas, needs.SEE_CATALOG),
    Route("GET", "/schemas/{full_name}", "getSchema", catalogs.load_schema, needs.SEE_NAMESPACE),
    Route("PATCH", "/schemas/{full_name}", "updateSchema", catalogs.update_schema, needs.CHANGE_SCHEMA),
    Route(
        "DELETE", "/schemas/{full_name}", "deleteSchema", catalogs.delete_schema, Needs("schema", privileges.MANAGED)
    ),
    Route("POST", "/staging-tables", "createStagingTable", tables.stage, _STAGE_TABLE),
    Route("POST", "/delta/preview/commits", "commit", tables.add_commit, Needs("table", privileges.MODIFY_TABLE)),
    Route("GET", "/delta/preview/commits", "getCommits", tables.get_commits, _READ_TABLE),
    Route("POST", "/tables", "createTable", tables.create, _CREATE_TABLE),
    Route("GET", "/tables", "listTables", tables.list_all, Needs("schema")),
    Route("GET", "/tables/{full_name}", "getTable", tables.load, _READ_TABLE),
    Route("DELETE", "/tables/{full_name}", "deleteTable", tables.delete, _DROP_TABLE),
    Route(
        "POST",
        "/volumes",
        "createVolume",
        securables.create_volume,
        Needs("schema", privileges.CREATE_VOLUME, {"location": privileges.CREATE_EXTERNAL_VOLUME}),
    ),
    Route("GET", "/volumes", "listVolumes", securables.list_handler("volume", "volumes"), Needs("schema")),
    Route(
        "GET",
        "/volumes/{name}",
        "getVolume",
        securables.load_handler("volume"),
        Needs("volume", privileges.READ_VOLUME),
    ),
    Route(
        "PATCH",
        "/volumes/{name}",
        "updateVolume",
        securables.update_handler("volume"),
        Needs("volume", privileges.MANAGED, {"destination": privileges.CREATE_VOLUME}),
    ),
    Route(
        "DELETE",
        "/volumes/{name}",
        "deleteVolume",
        securables.delete_handler("volume"),
        Needs("volume", privileges.MANAGED),
    ),
    Route(
        "POST", "/functions", "createFunction", securables.create_function, Needs("schema", privileges.CREATE_FUNCTION)
    ),
    Route("GET", "/functions", "listFunctions", securables.list_handler("function", "functions"), Needs("schema")),
    Route(
        "GET",
        "/functions/{name}",
        "getFunction",
        securables.load_handler("function"),
        Needs("function", privileges.EXECUTE),
    ),
    Route(
        "DELETE",
        "/functions/{name}",
        "deleteFunction",
        securables.delete_handler("function"),
        Needs("function", privileges.MANAGED),
    ),
    Route(
        "POST", "/models", "createRegisteredModel", securables.create_model, Needs("schema", privileges.CREATE_MODEL)
    ),
    Route("GET", "/models", "listRegisteredModels", securables.list_models, Needs("schema")),
    Route("POST", "/models/versions", "createModelVersion", securables.create_version, _MANAGE_MODEL),
    Route(
        "GET", "/models/{full_name}", "getRegisteredModel", securables.load_handler("model", "full_name"), _READ_MODEL
    ),
    Route(
        "PATCH",
        "/models/{full_name}",
        "updateRegisteredModel",
        securables.update_handler("model", "full_name"),
        Needs("registered_model", privileges.MANAGED, {"destination": privileges.CREATE_MODEL}),
    ),
    Route("DELETE", "/models/{full_name}", "deleteRegisteredModel", securables.delete_model, _MANAGE_MODEL),
    Route("GET", "/models/{full_name}/versions", "listModelVersions", securables.list_versions, _READ_MODEL),
    Route("GET", "/models/{full_name}/versions/{version}", "getModelVersion", securables.load_version, _READ_MODEL),
    Route(
        "PATCH",
        "/models/{full_name}/versions/{version}",
        "updateModelVersion",
        securables.update_version,
        _MANAGE_MODEL,
    ),
    Route(
        "DELETE",
        "/models/{full_name}/versions/{version}",
        "deleteModelVersion",
        securables.delete_version,
        _MANAGE_MODEL,
    ),
    Route(
        "PATCH",
        "/models/{full_name}/versions/{version}/finalize",
        "finalizeModelVersion",
        securables.finalize_version,
        _MANAGE_MODEL,
    ),
    Route(
        "POST",
        "/temporary-table-credentials",
        "generateTemporaryTableCredentials",
        storage.credentials_for_table,
        Needs("table", privileges.READ_DATA, {"write": privileges.WRITE_DATA, "stage": privileges.CREATE_TABLE}),
    ),
    Route(
        "POST",
        "/temporary-volume-credentials",
        "generateTemporaryVolumeCredentials",
        storage.credentials_for_volume,
        Needs("volume", privileges.READ_VOLUME_DATA, {"write": privileges.WRITE_VOLUME_DATA}),
    ),
    Route(
        "POST",
        "/temporary-model-version-credentials",
        "generateTemporaryModelVersionCredentials",
        storage.credentials_for_model_version,
        Needs("registered_model", privileges.READ_MODEL_DATA, {"write": privileges.WRITE_MODEL_DATA}),
    ),
    Route(
        "POST",
        "/temporary-path-credentials",
        "generateTemporaryPathCredentials",
        storage.credentials_for_path,
        privileges.PATH_CREDENTIALS,
    ),
    Route(
        "GET",
        "/permissions/{securable_type}/{full_name}",
        "getPermissions",
        grants.load_permissions,
        privileges.READ_GRANTS,
    ),
    Route(
        "PATCH",
        "/permissions/{securable_type}/{full_name}",
        "updatePermissions",
        grants.update_permissions,
        privileges.CHANGE_GRANTS,
    ),
    Route("GET", "/metastore_summary", "getMetastoreSummary", grants.load_metastore, AUTHENTICATED),
    Route(
        "POST",
        "/credentials",
        "createCredential",
        storage.create_credential,
        Needs("metastore", privileges.CREATE_STORAGE_CREDENTIAL),
    ),
    Route("GET", "/credentials", "listCredentials", storage.list_credentials, Needs("metastore")),
    Route("GET", "/credentials/{name}", "getCredential", storage.load_credential, Needs("credential")),
    Route(
        "PATCH",
        "/credentials/{name}",
        "updateCredential",
        storage.update_credential,
        Needs("credential", privileges.MANAGED),
    ),
    Route(
        "DELETE",
        "/credentials/{name}",
        "deleteCredential",
        storage.delete_credential,
        Needs("credential", privileges.MANAGED),
    ),
    Route(
        "POST",
        "/external-locations",
        "createExternalLocation",
        storage.create_location,
        Needs("metastore", privileges.CREATE_EXTERNAL_LOCATION, {"credential": privileges.CREATE_EXTERNAL_LOCATION}),
    ),
    Route("GET", "/external-locations", "listExternalLocations", storage.list_locations, Needs("metastore")),
    Route(
        "GET", "/external-locations/{name}", "getExternalLocation", storage.load_location, Needs("external_location")
    ),
    Route(
        "PATCH",
        "/external-locations/{name}",
        "updateExternalLocation",
        storage.update_location,
        Needs("external_location", privileges.MANAGED, {"credential": privileges.CREATE_EXTERNAL_LOCATION}),
    ),
    Route(
        "DELETE",
        "/external-locations/{name}",
        "deleteExternalLocation",
        storage.delete_location,
        Needs("external_location", privileges.MANAGED),
    ),
)

CONTROL_ROUTES: Final = (
    Route("POST", "/scim2/Users", "createUser", access.create_user, Needs("metastore", privileges.MANAGED)),
    Route("GET", "/scim2/Users", "listUsers", access.list_users, Needs("metastore", privileges.MANAGED)),
    Route("GET", "/scim2/Users/{id}", "getUser", access.load_user, Needs("metastore", privileges.MANAGED)),
    Route("PUT", "/scim2/Users/{id}", "updateUser", access.update_user, Needs("metastore", privileges.MANAGED)),
    Route("PATCH", "/scim2/Users/{id}", "patchUser", access.patch_user, Needs("metastore", privileges.MANAGED)),
    Route("DELETE", "/scim2/Users/{id}", "deleteUser", access.delete_user, Needs("metastore", privileges.MANAGED)),
    Route("POST", "/scim2/Groups", "createGroup", groups.create_group, Needs("metastore", privileges.MANAGED)),
    Route("GET", "/scim2/Groups", "listGroups", groups.list_groups, Needs("metastore", privileges.MANAGED)),
    Route("GET", "/scim2/Groups/{id}", "getGroup", groups.load_group, Needs("metastore", privileges.MANAGED)),
    Route("PUT", "/scim2/Groups/{id}", "updateGroup", groups.update_group, Needs("metastore", privileges.MANAGED)),
    Route("PATCH", "/scim2/Groups/{id}", "patchGroup", groups.patch_group, Needs("metastore", privileges.MANAGED)),
    Route("DELETE", "/scim2/Groups/{id}", "deleteGroup", groups.delete_group, Needs("metastore", privileges.MANAGED)),
    Route("GET", "/scim2/Me", "getSelf", access.load_self, AUTHENTICATED),
    Route("POST", "/auth/tokens", "getUnityToken", access.get_token, OPEN),
    Route("POST", "/auth/logout", "logout", access.logout, OPEN),
)

UNITY: Final = Dialect(
    name="unity",
    # The second mount catches paths that only begin like the first one: they get an error of this API.
    mounts=(b"/api/2.1/unity-catalog/", b"/api/2.1/unity-catalog"),
    router=Router(CLASSIC_ROUTES, unknown_status=501, ignores_trailing_slash=True),
    errors=ERRORS,
)
UNITY_CONTROL: Final = Dialect(
    name="unity-control",
    mounts=(b"/api/1.0/unity-control/", b"/api/1.0/unity-control"),
    router=Router(CONTROL_ROUTES, unknown_status=501, ignores_trailing_slash=True),
    errors=ERRORS,
)
