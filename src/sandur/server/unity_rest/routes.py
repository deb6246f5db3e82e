"""The routes of the Unity Catalog API, and of its control API for users and tokens."""

from typing import Final

from sandur.server.app import Dialect, Route, Router
from sandur.server.unity_rest import access, catalogs, securables, storage, tables
from sandur.server.unity_rest.errors import ERRORS

CLASSIC_ROUTES: Final = (
    Route("POST", "/catalogs", "createCatalog", catalogs.create_catalog),
    Route("GET", "/catalogs", "listCatalogs", catalogs.list_catalogs),
    Route("GET", "/catalogs/{name}", "getCatalog", catalogs.load_catalog),
    Route("PATCH", "/catalogs/{name}", "updateCatalog", catalogs.update_catalog),
    Route("DELETE", "/catalogs/{name}", "deleteCatalog", catalogs.delete_catalog),
    Route("POST", "/schemas", "createSchema", catalogs.create_schema),
    Route("GET", "/schemas", "listSchemas", catalogs.list_schemas),
    Route("GET", "/schemas/{full_name}", "getSchema", catalogs.load_schema),
    Route("PATCH", "/schemas/{full_name}", "updateSchema", catalogs.update_schema),
    Route("DELETE", "/schemas/{full_name}", "deleteSchema", catalogs.delete_schema),
    Route("POST", "/staging-tables", "createStagingTable", tables.stage),
    Route("POST", "/delta/preview/commits", "commit", tables.add_commit),
    Route("GET", "/delta/preview/commits", "getCommits", tables.get_commits),
    Route("POST", "/tables", "createTable", tables.create),
    Route("GET", "/tables", "listTables", tables.list_all),
    Route("GET", "/tables/{full_name}", "getTable", tables.load),
    Route("DELETE", "/tables/{full_name}", "deleteTable", tables.delete),
    Route("POST", "/volumes", "createVolume", securables.create_volume),
    Route("GET", "/volumes", "listVolumes", securables.list_handler("volume", "volumes")),
    Route("GET", "/volumes/{name}", "getVolume", securables.load_handler("volume")),
    Route("PATCH", "/volumes/{name}", "updateVolume", securables.update_handler("volume")),
    Route("DELETE", "/volumes/{name}", "deleteVolume", securables.delete_handler("volume")),
    Route("POST", "/functions", "createFunction", securables.create_function),
    Route("GET", "/functions", "listFunctions", securables.list_handler("function", "functions")),
    Route("GET", "/functions/{name}", "getFunction", securables.load_handler("function")),
    Route("DELETE", "/functions/{name}", "deleteFunction", securables.delete_handler("function")),
    Route("POST", "/models", "createRegisteredModel", securables.create_model),
    Route("GET", "/models", "listRegisteredModels", securables.list_models),
    Route("POST", "/models/versions", "createModelVersion", securables.create_version),
    Route("GET", "/models/{full_name}", "getRegisteredModel", securables.load_handler("model", "full_name")),
    Route("PATCH", "/models/{full_name}", "updateRegisteredModel", securables.update_handler("model", "full_name")),
    Route("DELETE", "/models/{full_name}", "deleteRegisteredModel", securables.delete_model),
    Route("GET", "/models/{full_name}/versions", "listModelVersions", securables.list_versions),
    Route("GET", "/models/{full_name}/versions/{version}", "getModelVersion", securables.load_version),
    Route("PATCH", "/models/{full_name}/versions/{version}", "updateModelVersion", securables.update_version),
    Route("DELETE", "/models/{full_name}/versions/{version}", "deleteModelVersion", securables.delete_version),
    Route(
        "PATCH", "/models/{full_name}/versions/{version}/finalize", "finalizeModelVersion", securables.finalize_version
    ),
    Route("POST", "/temporary-table-credentials", "generateTemporaryTableCredentials", storage.credentials_for_table),
    Route(
        "POST", "/temporary-volume-credentials", "generateTemporaryVolumeCredentials", storage.credentials_for_volume
    ),
    Route(
        "POST",
        "/temporary-model-version-credentials",
        "generateTemporaryModelVersionCredentials",
        storage.credentials_for_model_version,
    ),
    Route("POST", "/temporary-path-credentials", "generateTemporaryPathCredentials", storage.credentials_for_path),
    Route("GET", "/permissions/{securable_type}/{full_name}", "getPermissions", access.load_permissions),
    Route("PATCH", "/permissions/{securable_type}/{full_name}", "updatePermissions", access.update_permissions),
    Route("GET", "/metastore_summary", "getMetastoreSummary", access.load_metastore),
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
    Route("POST", "/scim2/Users", "createUser", access.create_user),
    Route("GET", "/scim2/Users", "listUsers", access.list_users),
    Route("GET", "/scim2/Users/{id}", "getUser", access.load_user),
    Route("PUT", "/scim2/Users/{id}", "updateUser", access.update_user),
    Route("DELETE", "/scim2/Users/{id}", "deleteUser", access.delete_user),
    Route("GET", "/scim2/Me", "getSelf", access.load_self),
    Route("POST", "/auth/tokens", "getUnityToken", access.get_token, is_open=True),
    Route("POST", "/auth/logout", "logout", access.logout, is_open=True),
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
