"""Every route of the classic and of the control API, in tables: what is mounted, and who answers."""

from typing import Final

from sandur.server.unity_rest import catalogs, schemas
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
)

CONTROL_ROUTES: Final[tuple[Route, ...]] = ()
