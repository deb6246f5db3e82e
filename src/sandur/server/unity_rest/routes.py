"""Every route of the classic and of the control API, in tables: what is mounted, and who answers."""

from typing import Final

from sandur.server.unity_rest import catalogs, commits, functions, models, schemas, tables, volumes
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
    Route("POST", "/volumes", "createVolume", volumes.create),
    Route("GET", "/volumes", "listVolumes", volumes.list_all),
    Route("GET", "/volumes/{name}", "getVolume", volumes.load),
    Route("PATCH", "/volumes/{name}", "updateVolume", volumes.update),
    Route("DELETE", "/volumes/{name}", "deleteVolume", volumes.delete),
    Route("POST", "/functions", "createFunction", functions.create),
    Route("GET", "/functions", "listFunctions", functions.list_all),
    Route("GET", "/functions/{name}", "getFunction", functions.load),
    Route("DELETE", "/functions/{name}", "deleteFunction", functions.delete),
    Route("POST", "/models", "createRegisteredModel", models.create),
    Route("GET", "/models", "listRegisteredModels", models.list_all),
    Route("POST", "/models/versions", "createModelVersion", models.create_version),
    Route("GET", "/models/{full_name}", "getRegisteredModel", models.load),
    Route("PATCH", "/models/{full_name}", "updateRegisteredModel", models.update),
    Route("DELETE", "/models/{full_name}", "deleteRegisteredModel", models.delete),
    Route("GET", "/models/{full_name}/versions", "listModelVersions", models.list_versions),
    Route("GET", "/models/{full_name}/versions/{version}", "getModelVersion", models.load_version),
    Route("PATCH", "/models/{full_name}/versions/{version}", "updateModelVersion", models.update_version),
    Route("DELETE", "/models/{full_name}/versions/{version}", "deleteModelVersion", models.delete_version),
    Route("PATCH", "/models/{full_name}/versions/{version}/finalize", "finalizeModelVersion", models.finalize_version),
)

CONTROL_ROUTES: Final[tuple[Route, ...]] = ()
