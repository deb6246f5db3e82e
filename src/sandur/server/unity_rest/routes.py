"""Every route of the classic and of the control API, in tables: what is mounted, and who answers."""

from typing import Final

from sandur.server.unity_rest import catalogs, commits, control, permissions, schemas, securables, storage, tables
from sandur.server.unity_rest import storage as temporary_credentials
from sandur.server.unity_rest.routing import Route

CLASSIC_ROUTES: Final = (
    Route("POST", "/catalogs", "createCatalog", catalogs.create),
    Route("GET", "/catalogs", "listCatalogs", catalogs.list_all),
    Route("GET", "/catalogs/{name}", "getCatalog", catalogs.load),
    Route("PATCH", "/catalogs/{name}", "updateCatalog", catalogs.update),
    Route("DELETE", "/catalogs/{name}", "deleteCatalog", catalogs.delete),
    Route("POST", "/schemas", "createSchema", schemas.create),
    Route("GET", "/schemas", "listSchemas", schemas.list_all),
    Route("GET", "/schemas/{full_name}", "getSchema", schemas.load),
    Route("PATCH", "/schemas/{full_name}", "updateSchema", schemas.update),
    Route("DELETE", "/schemas/{full_name}", "deleteSchema", schemas.delete),
    Route("POST", "/staging-tables", "createStagingTable", tables.stage),
    Route("POST", "/delta/preview/commits", "commit", commits.post),
    Route("GET", "/delta/preview/commits", "getCommits", commits.get),
    Route("POST", "/tables", "createTable", tables.create),
    Route("GET", "/tables", "listTables", tables.list_all),
    Route("GET", "/tables/{full_name}", "getTable", tables.load),
    Route("DELETE", "/tables/{full_name}", "deleteTable", tables.delete),
    Route("POST", "/volumes", "createVolume", securables.create_volume),
    Route("GET", "/volumes", "listVolumes", securables.list_volumes),
    Route("GET", "/volumes/{name}", "getVolume", securables.load_volume),
    Route("PATCH", "/volumes/{name}", "updateVolume", securables.update_volume),
    Route("DELETE", "/volumes/{name}", "deleteVolume", securables.delete_volume),
    Route("POST", "/functions", "createFunction", securables.create_function),
    Route("GET", "/functions", "listFunctions", securables.list_functions),
    Route("GET", "/functions/{name}", "getFunction", securables.load_function),
    Route("DELETE", "/functions/{name}", "deleteFunction", securables.delete_function),
    Route("POST", "/models", "createRegisteredModel", securables.create_model),
    Route("GET", "/models", "listRegisteredModels", securables.list_models),
    Route("POST", "/models/versions", "createModelVersion", securables.create_version),
    Route("GET", "/models/{full_name}", "getRegisteredModel", securables.load_model),
    Route("PATCH", "/models/{full_name}", "updateRegisteredModel", securables.update_model),
    Route("DELETE", "/models/{full_name}", "deleteRegisteredModel", securables.delete_model),
    Route("GET", "/models/{full_name}/versions", "listModelVersions", securables.list_versions),
    Route("GET", "/models/{full_name}/versions/{version}", "getModelVersion", securables.load_version),
    Route("PATCH", "/models/{full_name}/versions/{version}", "updateModelVersion", securables.update_version),
    Route("DELETE", "/models/{full_name}/versions/{version}", "deleteModelVersion", securables.delete_version),
    Route(
        "PATCH", "/models/{full_name}/versions/{version}/finalize", "finalizeModelVersion", securables.finalize_version
    ),
    Route("POST", "/temporary-table-credentials", "generateTemporaryTableCredentials", temporary_credentials.for_table),
    Route(
        "POST", "/temporary-volume-credentials", "generateTemporaryVolumeCredentials", temporary_credentials.for_volume
    ),
    Route(
        "POST",
        "/temporary-model-version-credentials",
        "generateTemporaryModelVersionCredentials",
        temporary_credentials.for_model_version,
    ),
    Route("POST", "/temporary-path-credentials", "generateTemporaryPathCredentials", temporary_credentials.for_path),
    Route("GET", "/permissions/{securable_type}/{full_name}", "getPermissions", permissions.load),
    Route("PATCH", "/permissions/{securable_type}/{full_name}", "updatePermissions", permissions.update),
    Route("GET", "/metastore_summary", "getMetastoreSummary", permissions.metastore),
    Route("POST", "/credentials", "createCredential", storage.create_credential),
    Route("GET", "/credentials", "listCredentials", storage.list_credentials),
    Route("GET", "/credentials/{name}", "getCredential", storage.load_credential),
    Route("PATCH", "/credentials/{name}", "updateCredential", storage.update_credential),
    Route("DELETE", "/credentials/{name}", "deleteCredential", storage.delete_credential),
    Route("POST", "/external-locations", "createExternalLocation", storage.create_location),
    Route("GET", "/external-locations", "listExternalLocations", storage.list_locations),
    Route("GET", "/external-locations/{name}", "getExternalLocation", storage.load_location),
    Route("PATCH", "/external-locations/{name}", "updateExternalLocation", storage.update_location),
    Route("DELETE", "/external-locations/{name}", "deleteExternalLocation", storage.delete_location),
)

CONTROL_ROUTES: Final = (
    Route("POST", "/scim2/Users", "createUser", control.create_user),
    Route("GET", "/scim2/Users", "listUsers", control.list_users),
    Route("GET", "/scim2/Users/{id}", "getUser", control.load_user),
    Route("PUT", "/scim2/Users/{id}", "updateUser", control.update_user),
    Route("DELETE", "/scim2/Users/{id}", "deleteUser", control.delete_user),
    Route("GET", "/scim2/Me", "getSelf", control.load_self),
    Route("POST", "/auth/tokens", "getUnityToken", control.token, is_open=True),
    Route("POST", "/auth/logout", "logout", control.logout, is_open=True),
)
