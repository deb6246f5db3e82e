"""What the operations need that several APIs offer: declared once, so that no API is a way around another."""

from typing import Final

from sandur.catalog.security import privileges
from sandur.catalog.security.privileges import Needs
from sandur.operations.credentials.table_access import SITUATION
from sandur.operations.identity.principals import OTHERS

# At a location that the client names, below an external location.
_AT_LOCATION: Final = {"location": privileges.CREATE_EXTERNAL_TABLE}
_MANAGED_STORAGE: Final = {"location": privileges.CREATE_MANAGED_STORAGE}
# Files that a dropped table may have left, or that a client names.
_FILES: Final = {"files": privileges.READ_FILES}
_COMMIT: Final = {"relocate": privileges.MANAGED, "create": privileges.CREATE_TABLE, **_AT_LOCATION, **_FILES}
_REGISTER: Final = {**_AT_LOCATION, **_FILES, "overwrite": privileges.MANAGED}
# With credentials for the files, which a client may want together with a table or a plan.
_CREDENTIALS: Final = {SITUATION: privileges.READ_DATA}

LIST_CATALOGS: Final = Needs("metastore")
CREATE_CATALOG: Final = Needs("metastore", privileges.CREATE_CATALOG, _MANAGED_STORAGE)
SEE_CATALOG: Final = Needs("catalog")
MANAGE_CATALOG: Final = Needs("catalog", privileges.MANAGED)
CHANGE_CATALOG: Final = Needs("catalog", privileges.MANAGED, {"destination": privileges.CREATE_CATALOG})
CHANGE_SCHEMA: Final = Needs("schema", privileges.MANAGED, {"destination": privileges.CREATE_SCHEMA})

CREATE_NAMESPACE: Final = Needs("catalog", privileges.CREATE_SCHEMA, _MANAGED_STORAGE)
SEE_NAMESPACE: Final = Needs("schema")
CHANGE_NAMESPACE: Final = Needs("schema", privileges.MANAGED, _MANAGED_STORAGE)
DROP_NAMESPACE: Final = Needs("schema", privileges.MANAGED)

CREATE_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, {**_AT_LOCATION, **_CREDENTIALS})
REGISTER_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, {**_AT_LOCATION, **_CREDENTIALS, **_REGISTER})
READ_TABLE: Final = Needs("table", privileges.READ_TABLE)
COMMIT_TABLE: Final = Needs("table", privileges.MODIFY_TABLE, _COMMIT)
COMMIT_TRANSACTION: Final = Needs(
    "tables",
    privileges.MODIFY_TABLE,
    {**_COMMIT, "view": privileges.MANAGED, "create view": privileges.CREATE_VIEW},
)
REQUEST_MAINTENANCE: Final = Needs("table", privileges.MODIFY_TABLE)
DROP_TABLE: Final = Needs("table", privileges.MANAGED, {"purge": privileges.PURGE_TABLE})
RENAME_TABLE: Final = Needs("table", privileges.MANAGED, {"destination": privileges.CREATE_TABLE})
READ_FILES: Final = Needs("table", privileges.READ_DATA)
PLAN_SCAN: Final = Needs("table", privileges.SCAN_TABLE, _CREDENTIALS)
SCAN_TABLE: Final = Needs("table", privileges.SCAN_TABLE)

CREATE_VIEW: Final = Needs("schema", privileges.CREATE_VIEW, _AT_LOCATION)
REGISTER_VIEW: Final = Needs("schema", privileges.CREATE_VIEW, _REGISTER)
DESCRIBE_OBJECT: Final = Needs(
    "table",
    further={
        "table": privileges.READ_TABLE,
        "view": privileges.READ_VIEW,
        "volume": privileges.READ_VOLUME,
        "function": privileges.EXECUTE,
        "model": privileges.EXECUTE,
    },
)

READ_VIEW: Final = Needs("view", privileges.READ_VIEW)
REPLACE_VIEW: Final = Needs("view", privileges.MANAGED, {"relocate": privileges.MANAGED, **_AT_LOCATION})
DROP_VIEW: Final = Needs("view", privileges.MANAGED)
RENAME_VIEW: Final = Needs("view", privileges.MANAGED, {"destination": privileges.CREATE_VIEW})

STAGE_DELTA_TABLE: Final = Needs("schema", privileges.CREATE_TABLE)
CREATE_DELTA_TABLE: Final = Needs("schema", privileges.CREATE_TABLE, _AT_LOCATION)
COMMIT_DELTA_TABLE: Final = Needs("table", privileges.MODIFY_TABLE)
DROP_DELTA_TABLE: Final = Needs("table", privileges.MANAGED, {"purge": privileges.MANAGED})

ADMINISTER: Final = Needs("metastore", privileges.MANAGED)
SEE_METASTORE: Final = Needs("metastore")
OWN_OR_ADMINISTER: Final = Needs("caller", further={OTHERS: privileges.MANAGED})
