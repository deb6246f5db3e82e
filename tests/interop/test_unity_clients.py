"""Clients of Unity Catalog's classic API against a real server: `unitycatalog-client`, and DuckDB's catalog."""

import datetime as dt
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import deltalake
import duckdb
import httpx
import polars as pl
import pyarrow as pa
import pytest
import unitycatalog.client as uc
from unitycatalog.client.exceptions import ApiException

from demo.duckdb_sessions import unity_session
from tests.server.process import ServerProcess, server_process
from tests.server.requests import create_table, create_view
from tests.server.unity.client import UNITY

DELTA = uc.DataSourceFormat.DELTA
ANYBODY = "any"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("unity-clients")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[ServerProcess]:
    with server_process(folder, "--workers", "2", "--allow-location", f"file://{folder}/allowed", fsync="never") as one:
        yield one


@pytest.fixture
async def client(server: ServerProcess) -> AsyncIterator[uc.ApiClient]:
    async with uc.ApiClient(uc.Configuration(host=f"{server.url}{UNITY}")) as opened:
        opened.set_default_header("Authorization", "Bearer any")
        yield opened


@pytest.fixture
async def schema(client: uc.ApiClient) -> str:
    """A schema that only this test uses."""
    name = f"s{uuid.uuid5(uuid.NAMESPACE_URL, str(id(client))).hex[:12]}"
    await uc.SchemasApi(client).create_schema(uc.CreateSchema(name=name, catalog_name="main", comment="made here"))
    return name


async def test_catalogs_and_schemas_are_created_and_deleted(client: uc.ApiClient) -> None:
    catalogs, schemas = uc.CatalogsApi(client), uc.SchemasApi(client)

    made = await catalogs.create_catalog(uc.CreateCatalog(name="c", comment="words", properties={"k": "v"}))
    await schemas.create_schema(uc.CreateSchema(name="s", catalog_name="c", properties={"a": "b"}))
    changed = await catalogs.update_catalog("c", uc.UpdateCatalog(comment="other"))
    listed = await schemas.list_schemas("c")

    assert (made.name, made.properties, changed.comment) == ("c", {"k": "v"}, "other")
    assert listed.schemas is not None
    assert [(found.full_name, found.properties) for found in listed.schemas] == [("c.s", {"a": "b"})]
    with pytest.raises(ApiException) as refused:
        await catalogs.delete_catalog("c")
    assert refused.value.status == 400
    await catalogs.delete_catalog("c", force=True)
    with pytest.raises(ApiException) as missing:
        await catalogs.get_catalog("c")
    assert missing.value.status == 404


async def test_tables_of_every_format_are_listed_and_loaded(
    client: uc.ApiClient, server: ServerProcess, folder: Path, schema: str
) -> None:
    tables = uc.TablesApi(client)
    for name, form in (("d", DELTA), ("p", uc.DataSourceFormat.PARQUET)):
        column = uc.ColumnInfo(
            name="id",
            type_text="bigint",
            type_name=uc.ColumnTypeName.LONG,
            type_json='{"name":"id","type":"long","nullable":true,"metadata":{}}',
            position=0,
            nullable=True,
        )
        wanted = uc.CreateTable(
            name=name,
            catalog_name="main",
            schema_name=schema,
            table_type=uc.TableType.EXTERNAL,
            data_source_format=form,
            columns=[column],
            storage_location=f"file://{folder}/allowed/{schema}/{name}",
            properties={"k": "v"},
        )
        made = await tables.create_table(wanted)
        assert made.columns == [column]
    async with httpx.AsyncClient(base_url=server.url) as iceberg:
        made_there = await iceberg.post(f"/v1/main/namespaces/{schema}/tables", json=create_table("i"))
        assert made_there.status_code == 200

    listed = await tables.list_tables("main", schema)
    loaded = await tables.get_table(f"main.{schema}.i")

    assert listed.tables is not None
    assert [(table.name, table.data_source_format) for table in listed.tables] == [
        ("d", DELTA),
        ("i", uc.DataSourceFormat.ICEBERG),
        ("p", uc.DataSourceFormat.PARQUET),
    ]
    assert loaded == listed.tables[1]
    assert [column.type_text for column in loaded.columns or []] == ["bigint", "string"]
    first = await tables.list_tables("main", schema, max_results=2)
    rest = await tables.list_tables("main", schema, max_results=2, page_token=first.next_page_token)
    assert [table.name for table in [*(first.tables or []), *(rest.tables or [])]] == ["d", "i", "p"]
    credentials = await uc.TemporaryCredentialsApi(client).generate_temporary_table_credentials(
        uc.GenerateTemporaryTableCredential(table_id=loaded.table_id or "", operation=uc.TableOperation.READ)
    )
    assert credentials.url == loaded.storage_location
    await tables.delete_table(f"main.{schema}.d")
    with pytest.raises(ApiException) as missing:
        await tables.get_table(f"main.{schema}.d")
    assert missing.value.status == 404


async def test_volumes_models_and_functions_work(client: uc.ApiClient, schema: str) -> None:
    volumes, models = uc.VolumesApi(client), uc.RegisteredModelsApi(client)
    versions, functions = uc.ModelVersionsApi(client), uc.FunctionsApi(client)

    volume = await volumes.create_volume(
        uc.CreateVolumeRequestContent(
            catalog_name="main", schema_name=schema, name="v", volume_type=uc.VolumeType.MANAGED
        )
    )
    renamed = await volumes.update_volume(
        f"main.{schema}.v", uc.UpdateVolumeRequestContent(new_name="w", comment="words")
    )
    model = await models.create_registered_model(
        uc.CreateRegisteredModel(name="m", catalog_name="main", schema_name=schema)
    )
    version = await versions.create_model_version(
        uc.CreateModelVersion(model_name="m", catalog_name="main", schema_name=schema, source="runs:/1")
    )
    ready = await versions.finalize_model_version(
        f"main.{schema}.m", 1, uc.FinalizeModelVersion(full_name=f"main.{schema}.m", version=1)
    )
    parameter = uc.FunctionParameterInfo(
        name="x", type_text="int", type_name=uc.ColumnTypeName.INT, type_json='"integer"', position=0
    )
    function = await functions.create_function(
        uc.CreateFunctionRequest(
            function_info=uc.CreateFunction(
                name="f",
                catalog_name="main",
                schema_name=schema,
                input_params=uc.FunctionParameterInfos(parameters=[parameter]),
                data_type=uc.ColumnTypeName.INT,
                full_data_type="INT",
                routine_body="EXTERNAL",
                routine_definition="return x",
                parameter_style="S",
                is_deterministic=True,
                sql_data_access="NO_SQL",
                is_null_call=False,
                security_type="DEFINER",
                specific_name="f",
            )
        )
    )

    assert (renamed.name, renamed.comment, renamed.volume_id) == ("w", "words", volume.volume_id)
    assert (version.version, version.status, ready.status) == (
        1,
        uc.ModelVersionStatus.PENDING_REGISTRATION,
        uc.ModelVersionStatus.READY,
    )
    assert await functions.get_function(f"main.{schema}.f") == function
    assert [one.name for one in (await models.list_registered_models("main", schema)).registered_models or []] == ["m"]
    assert model.full_name == f"main.{schema}.m"
    await uc.SchemasApi(client).delete_schema(f"main.{schema}", force=True)


async def test_grants_credentials_and_locations_work(client: uc.ApiClient, schema: str) -> None:
    grants, credentials = uc.GrantsApi(client), uc.CredentialsApi(client)
    locations = uc.ExternalLocationsApi(client)
    name = f"main.{schema}"

    change = uc.PermissionsChange(principal="anonymous", add=[uc.Privilege.USE_SCHEMA], remove=[])
    await grants.update(uc.SecurableType.SCHEMA, name, uc.UpdatePermissions(changes=[change]))
    granted = await grants.get(uc.SecurableType.SCHEMA, name, principal="anonymous")
    role = uc.AwsIamRoleRequest(role_arn="arn:aws:iam::123456789012:role/reader")
    await credentials.create_credential(uc.CreateCredentialRequest(name=schema, aws_iam_role=role))
    location = await locations.create_external_location(
        uc.CreateExternalLocation(name=schema, url=f"s3://bucket/{schema}", credential_name=schema)
    )

    assert granted.privilege_assignments == [
        uc.PrivilegeAssignment(principal="anonymous", privileges=[uc.Privilege.USE_SCHEMA])
    ]
    assert location.credential_name == schema
    assert (await uc.MetastoresApi(client).summary()).metastore_id
    await locations.delete_external_location(schema)
    await credentials.delete_credential(schema)


def test_duckdb_lists_schemas_and_tables_of_every_format(server: ServerProcess, folder: Path) -> None:
    with httpx.Client(base_url=server.url) as http:
        http.post(f"{UNITY}/schemas", json={"catalog_name": "main", "name": "ducks"}).raise_for_status()
        http.post("/v1/main/namespaces/ducks/tables", json=create_table("iceberg")).raise_for_status()
        http.post("/v1/main/namespaces/ducks/views", json=create_view("seen")).raise_for_status()
        table = {"catalog_name": "main", "schema_name": "ducks", "name": "files", "table_type": "EXTERNAL"}
        where = {"data_source_format": "CSV", "storage_location": f"file://{folder}/allowed/ducks", "columns": []}
        http.post(f"{UNITY}/tables", json={**table, **where}).raise_for_status()
    session = unity_session(server.url, "ducks")

    schemas = session.execute("SELECT schema_name FROM duckdb_schemas() WHERE database_name = 'uc'").fetchall()
    tables = session.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'ducks'").fetchall()

    assert ("ducks",) in schemas
    assert ("iceberg",) in tables


TIMES = {
    "type": "struct",
    "schema-id": 0,
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "at", "type": "timestamp", "required": False},
        {"id": 3, "name": "any", "type": "variant", "required": False},
    ],
}


@pytest.fixture(scope="module")
def mixed_schema(server: ServerProcess, folder: Path) -> str:
    """A schema with an Iceberg table, a view and two Delta tables; `timestamp_ntz` is in two of the tables."""
    times = [dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=zone) for zone in (dt.UTC, None)]
    with httpx.Client(base_url=server.url) as http:
        http.post(f"{UNITY}/schemas", json={"catalog_name": "main", "name": "mixed"}).raise_for_status()
        iceberg = {**create_table("iceberg"), "schema": TIMES, "properties": {"format-version": "3"}}
        http.post("/v1/main/namespaces/mixed/tables", json=iceberg).raise_for_status()
        http.post("/v1/main/namespaces/mixed/views", json=create_view("seen")).raise_for_status()
        for name, kind, time in zip(("delta", "delta_ntz"), ("timestamp", "timestamp_ntz"), times, strict=True):
            location = f"file://{folder}/allowed/mixed/{name}"
            deltalake.write_deltalake(location, pa.table({"id": [1], "time": [time]}))
            columns = [{"name": "id", "type_json": '"long"'}, {"name": "time", "type_json": f'"{kind}"'}]
            table = {"catalog_name": "main", "schema_name": "mixed", "name": name, "table_type": "EXTERNAL"}
            where = {"data_source_format": "DELTA", "storage_location": location, "columns": columns}
            http.post(f"{UNITY}/tables", json={**table, **where}).raise_for_status()
    return "mixed"


def test_duckdb_reads_delta_tables_beside_types_that_it_does_not_know(server: ServerProcess, mixed_schema: str) -> None:
    session = unity_session(server.url, mixed_schema)

    tables = session.execute("SELECT table_name FROM duckdb_tables() WHERE schema_name = 'mixed'").fetchall()
    rows = session.execute("SELECT id, epoch(time) FROM uc.mixed.delta").fetchall()

    assert sorted(tables) == [("delta",), ("iceberg",), ("seen",)]
    assert rows == [(1, dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC).timestamp())]
    for name in ("delta_ntz", "iceberg"):
        with pytest.raises(duckdb.Error):
            session.execute(f"SELECT * FROM uc.mixed.{name}")
    assert session.execute("SELECT id FROM uc.mixed.delta").fetchall() == [(1,)]


def test_polars_reads_delta_tables_beside_an_iceberg_table(server: ServerProcess, mixed_schema: str) -> None:
    catalog = pl.Catalog(server.url, bearer_token=ANYBODY, require_https=False)

    tables = catalog.list_tables("main", mixed_schema)

    assert [table.name for table in tables] == ["delta", "delta_ntz", "iceberg", "seen"]
    for name in ("delta", "delta_ntz"):
        assert catalog.scan_table("main", mixed_schema, name).collect()["id"].to_list() == [1]


def test_polars_creates_lists_writes_reads_and_drops(server: ServerProcess, folder: Path) -> None:
    catalog = pl.Catalog(server.url, bearer_token=ANYBODY, require_https=False)
    rows = pl.DataFrame(
        {"id": [1, 2], "text": ["a", "b"], "list": [[1], []]}, schema_overrides={"list": pl.List(pl.Int32)}
    )
    catalog.create_catalog("bears", comment="made by Polars")
    catalog.create_namespace("bears", "s")
    place = f"{folder}/allowed/polars"
    made = catalog.create_table(
        "bears", "s", "t", schema=rows.schema, table_type="EXTERNAL", data_source_format="DELTA", storage_root=place
    )

    catalog.write_table(rows, "bears", "s", "t", delta_mode="append")
    catalog.write_table(rows, "bears", "s", "t", delta_mode="append")

    assert "bears" in [found.name for found in catalog.list_catalogs()]
    assert [found.name for found in catalog.list_namespaces("bears")] == ["s"]
    assert [found.name for found in catalog.list_tables("bears", "s")] == ["t"]
    assert catalog.get_table_info("bears", "s", "t").get_polars_schema() == rows.schema
    assert made.storage_location == f"file://{place}"
    assert catalog.scan_table("bears", "s", "t").collect().sort("id").equals(pl.concat([rows, rows]).sort("id"))
    catalog.delete_table("bears", "s", "t")
    with pytest.raises(pl.exceptions.ComputeError, match="TABLE_NOT_FOUND"):
        catalog.get_table_info("bears", "s", "t")
    catalog.delete_catalog("bears", force=True)
