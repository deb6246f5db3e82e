"""The program that reads rows for a preview: it serves one request and ends.

It imports nothing of Sandur, and runs with an empty environment. It loads DuckDB and its extensions, says that it is
ready, and reads one request from standard input. Before the query of the request runs, files, networks, extensions and
settings are locked: the query can read the folders of its tables, and nothing else. A query is one SELECT, because COPY
could still write into these folders; the operating system also forbids this process to write files.
"""

import json
import math
import resource
import sys
from collections.abc import Mapping, Sequence
from typing import Any

CONFIG: dict[str, str | int | float | list[str]] = {
    "threads": 1,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_persistent_secrets": False,
    "allow_community_extensions": False,
    "temp_directory": "",
}
READY = "ready"
TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row"})
"""What a query may call after FROM: functions that make rows from their arguments."""


def main() -> None:
    extensions = json.loads(sys.argv[1])
    memory_bytes, seconds_max = int(sys.argv[2]), int(sys.argv[3])
    import duckdb  # noqa: PLC0415 - installed only where previews are wanted

    connection = connect(extensions, memory_bytes)
    for limit, value in (
        (resource.RLIMIT_AS, _address_space_bytes() + memory_bytes),
        (resource.RLIMIT_CPU, seconds_max),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(limit, (value, value))
    print(READY, flush=True)  # noqa: T201 - the parent waits for it
    request = json.loads(sys.stdin.readline())
    try:
        lock_in(connection, request)
        answer = read_rows(connection, request)
    except Refusal as error:
        answer = {"refused": str(error)}
    except (
        duckdb.ParserException,
        duckdb.BinderException,
        duckdb.CatalogException,
        duckdb.PermissionException,
    ) as error:
        answer = {"refused": str(error)}
    except duckdb.ConversionException as error:
        answer = {"refused": str(error)}
    except (duckdb.Error, MemoryError) as error:
        answer = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)  # noqa: T201 - the answer


def connect(extensions: Sequence[str], memory_bytes: int) -> Any:  # noqa: ANN401 - DuckDB is optional
    """A database in memory with these extensions, and without any others."""
    import duckdb  # noqa: PLC0415 - installed only where previews are wanted

    connection = duckdb.connect(config={**CONFIG, "memory_limit": f"{memory_bytes // 2}B"})
    for file in extensions:
        connection.execute(f"LOAD {_literal(file)}")
    return connection


class Refusal(Exception):
    """A query that is not allowed."""


def lock_in(connection: Any, request: Mapping[str, Any]) -> None:  # noqa: ANN401 - DuckDB is optional
    """Open the tables of a request, then shut everything else: no query can undo it."""
    for number, secret in enumerate(request["secrets"]):
        options = ", ".join(f"{name} {_literal(value)}" for name, value in secret.items())
        connection.execute(f"CREATE SECRET secret_{number} (TYPE s3, {options})")
    connection.execute("SET allowed_directories = $folders", {"folders": request["folders"]})
    for number, table in enumerate(request["tables"]):
        _add_table(connection, number, table)
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")


def read_rows(connection: Any, request: Mapping[str, Any]) -> dict[str, object]:  # noqa: ANN401 - as above
    """The rows of the request's query, as far as the limits allow. Raises Refusal for a query that is not a SELECT."""
    found = connection.execute(checked_query(connection, request["sql"]))
    columns = [{"name": column[0], "type": str(column[1])} for column in found.description]
    rows: list[list[object]] = []
    size = 0
    for _ in range(request["rows_max"]):
        row = found.fetchone()
        if row is None:
            return {"columns": columns, "rows": rows, "is_cut": False}
        cells = [_cell(value, request["cell_chars_max"]) for value in row]
        size += len(json.dumps(cells))
        if size > request["bytes_max"]:
            break
        rows.append(cells)
    return {"columns": columns, "rows": rows, "is_cut": len(rows) < request["rows_max"] or found.fetchone() is not None}


def checked_query(connection: Any, sql: str) -> Any:  # noqa: ANN401 - as above
    """The one SELECT of a text. Raises Refusal for any other, and for functions that read or write by themselves.

    Delta's functions open files and addresses past the locks of DuckDB, and `query` runs a text that was not checked.
    So only functions that make rows from their arguments are allowed after FROM.
    """
    statements = connection.extract_statements(sql)
    if len(statements) != 1 or statements[0].type.name != "SELECT":
        raise Refusal("a query is one SELECT statement")
    tree = json.loads(connection.execute("SELECT json_serialize_sql($sql)", {"sql": sql}).fetchone()[0])
    if tree.get("error"):
        raise Refusal("a query is one plain SELECT statement")
    pending: list[object] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            if node.get("type") == "TABLE_FUNCTION":
                name = str(node.get("function", {}).get("function_name", "")).lower()
                if name not in TABLE_FUNCTIONS:
                    raise Refusal(f"the function {name} is not allowed after FROM")
            elif node.get("type") == "SHOW_REF":
                raise Refusal("a query is one plain SELECT statement")
            pending += node.values()
        elif isinstance(node, list):
            pending += node
    return statements[0]


def _add_table(connection: Any, number: int, table: Mapping[str, Any]) -> None:  # noqa: ANN401 - as above
    """Make a table readable as `namespace.name` and, unless another one has that name, as `name`."""
    location = _literal(table["location"])
    if table["format"] == "iceberg":
        source = f"iceberg_scan({location})"
    elif table["version"] is None:
        source = f"delta_scan({location})"
    else:
        # The table is managed by the catalog, which says what its newest version is.
        connection.execute(f"ATTACH {location} AS delta_{number} (TYPE delta, max_catalog_version {table['version']})")
        source = f"delta_{number}"
    schema, name = _identifier(table["namespace"]), _identifier(table["name"])
    connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    connection.execute(f"CREATE VIEW {schema}.{name} AS SELECT * FROM {source}")  # noqa: S608 - all parts are quoted
    connection.execute(f"CREATE VIEW IF NOT EXISTS {name} AS SELECT * FROM {schema}.{name}")  # noqa: S608 - as above


def _cell(value: object, chars_max: int) -> object:
    """A value for JSON; long texts are cut, and what JSON does not have is a text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        value = bytes(value[: chars_max // 2 + 1]).hex()
    if isinstance(value, dict | list):
        value = json.dumps(value, default=str, ensure_ascii=False)
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= chars_max else f"{text[:chars_max]}…"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _identifier(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _address_space_bytes() -> int:
    """The address space that this process has now, with DuckDB and its extensions."""
    with open("/proc/self/statm", encoding="ascii") as pages:  # noqa: PTH123 - before anything else is imported
        return int(pages.read().split()[0]) * resource.getpagesize()


if __name__ == "__main__":
    main()
