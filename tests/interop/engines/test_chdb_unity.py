"""ClickHouse, as the library chDB, reads Delta tables on a bucket through the Unity Catalog API."""

import json
import subprocess

import deltalake
import httpx
import pyarrow as pa
import pytest

from sandur.settings import S3Settings
from tests.interop.engines.environments import NotInstalled, python_environment
from tests.interop.matrix import S3
from tests.interop.server_address import Served

pytestmark = [pytest.mark.interop, pytest.mark.timeout(3_000)]

UNITY = "/api/2.1/unity-catalog"
PROGRAM = """
import json, sys
from chdb.session import Session

statements = json.loads(sys.argv[1])
clickhouse = Session()
clickhouse.query("SET allow_database_unity_catalog = 1")
for statement in statements[:-1]:
    clickhouse.query(statement)
print(clickhouse.query(statements[-1], "JSONCompactEachRow"))
"""


@pytest.mark.parametrize("served", [S3], indirect=True)
def test_chdb_lists_and_reads_an_external_table(served: Served, schema_name: str) -> None:
    s3 = served.s3
    assert s3
    location = _made(served, s3, schema_name)

    listed = _answered(served, s3, "SHOW TABLES FROM unity")
    rows = _answered(served, s3, f"SELECT id, text FROM unity.`{schema_name}.t` ORDER BY id")

    assert [f"{schema_name}.t"] in listed
    assert rows == [[1, "a"], [2, "b"]], location


def _made(served: Served, s3: S3Settings, schema: str) -> str:
    """An external table with two rows, written by deltalake and registered."""
    with httpx.Client(base_url=served.url + UNITY) as http:
        location = f"{http.get('/catalogs/main').raise_for_status().json()['storage_location']}/{schema}_t"
        options = {
            "AWS_ACCESS_KEY_ID": s3.access_key_id,
            "AWS_SECRET_ACCESS_KEY": s3.secret_access_key,
            "AWS_ENDPOINT_URL": s3.endpoint,
            "AWS_REGION": s3.region,
            "AWS_ALLOW_HTTP": "true",
            "AWS_S3_ALLOW_UNSAFE_RENAME": "true",
        }
        deltalake.write_deltalake(location, pa.table({"id": [1, 2], "text": ["a", "b"]}), storage_options=options)
        columns = [_column(0, "id", "bigint", "long"), _column(1, "text", "string", "string")]
        table = {"catalog_name": "main", "schema_name": schema, "name": "t", "table_type": "EXTERNAL"}
        where = {"data_source_format": "DELTA", "storage_location": location, "columns": columns}
        http.post("/tables", json=table | where).raise_for_status()
    return location


def _column(position: int, name: str, text: str, kind: str) -> dict[str, object]:
    field = json.dumps({"name": name, "type": kind, "nullable": True, "metadata": {}})
    return {"name": name, "type_text": text, "type_name": kind.upper(), "type_json": field, "position": position}


def _answered(served: Served, s3: S3Settings, statement: str) -> list[list[object]]:
    attached = (
        f"CREATE DATABASE unity ENGINE = DataLakeCatalog('{served.url}{UNITY}', "
        f"'{s3.access_key_id}', '{s3.secret_access_key}') SETTINGS catalog_type = 'unity', warehouse = 'main', "
        f"catalog_credential = 'any', storage_endpoint = '{s3.endpoint}/sandur', vended_credentials = false"
    )
    try:
        interpreter = python_environment("chdb")
    except NotInstalled as reason:
        pytest.skip(f"chDB cannot be installed: {reason}")
    command = [str(interpreter), "-c", PROGRAM, json.dumps([attached, statement])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2_000:]
    return [json.loads(line) for line in done.stdout.splitlines() if line]
