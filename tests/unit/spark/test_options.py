"""The options of a Spark session: required, derived and refused values."""

import importlib.metadata

import pytest

from sandur.errors import BadRequest
from sandur.spark import Connection, S3Store, Versions, session_options

HUSH = "hush"
RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"
BUNDLE = "org.apache.iceberg:iceberg-aws-bundle:1.11.0"


def of_catalog(options: dict[str, str], name: str = "sandur") -> dict[str, str]:
    prefix = f"spark.sql.catalog.{name}."
    return {key.removeprefix(prefix): value for key, value in options.items() if key.startswith(prefix)}


def test_a_local_folder_needs_no_options() -> None:
    options = session_options(versions=Versions(spark="4.1"))

    assert options == {
        "spark.jars.packages": RUNTIME,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.sandur": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.sandur.type": "rest",
        "spark.sql.catalog.sandur.uri": "http://127.0.0.1:8181",
    }


def test_a_string_is_the_address_of_a_server() -> None:
    assert of_catalog(session_options("https://lake.example"))["uri"] == "https://lake.example"


def test_a_session_can_have_several_catalogs() -> None:
    options = session_options(Connection(name="a", warehouse="main"), Connection(name="b", warehouse="lake"))

    assert of_catalog(options, "a")["warehouse"] == "main"
    assert of_catalog(options, "b")["warehouse"] == "lake"


def test_two_catalogs_with_one_name_are_refused() -> None:
    with pytest.raises(BadRequest, match="catalog sandur: two of 2 catalogs have this name"):
        session_options("http://a", "http://b")


def test_s3_adds_its_classes_its_endpoint_and_its_keys() -> None:
    s3 = S3Store(endpoint="http://127.0.0.1:8333", access_key_id="id", secret_access_key=HUSH)

    options = session_options(Connection(s3=s3), versions=Versions(spark="4.1.4"))

    assert options["spark.jars.packages"] == f"{RUNTIME},{BUNDLE}"
    assert of_catalog(options) == {
        "type": "rest",
        "uri": "http://127.0.0.1:8181",
        "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "s3.endpoint": "http://127.0.0.1:8333",
        "client.region": "us-east-1",
        "s3.path-style-access": "true",
        "s3.access-key-id": "id",
        "s3.secret-access-key": HUSH,
    }


def test_s3_without_keys_leaves_them_to_the_environment_of_spark() -> None:
    written = of_catalog(session_options(Connection(s3=S3Store(region="eu-north-1", path_style=False))))

    assert set(written) == {"type", "uri", "io-impl", "client.region"}


@pytest.mark.parametrize(
    ("io_impl", "written"),
    [
        ("hadoop", "org.apache.iceberg.hadoop.HadoopFileIO"),
        ("s3", "org.apache.iceberg.aws.s3.S3FileIO"),
        ("resolving", "org.apache.iceberg.io.ResolvingFileIO"),
        ("com.example.OurFileIO", "com.example.OurFileIO"),
    ],
)
def test_the_file_access_can_be_chosen(io_impl: str, written: str) -> None:
    options = session_options(Connection(io_impl=io_impl), versions=Versions(spark="4.1"))

    assert of_catalog(options)["io-impl"] == written
    assert (BUNDLE in options["spark.jars.packages"]) == (io_impl == "s3")


def test_a_credential_is_exchanged_for_a_token_at_the_server() -> None:
    written = of_catalog(session_options(Connection(uri="http://h:1/", credential="me:hush")))

    assert written["credential"] == "me:hush"
    assert written["oauth2-server-uri"] == "http://h:1/v1/oauth/tokens"


def test_given_properties_win_and_packages_and_extensions_are_added() -> None:
    options = session_options(
        Connection(properties={"uri": "http://other", "cache-enabled": "false"}),
        versions=Versions(spark="4.1"),
        packages=["a:b:1"],
        options={"spark.jars.packages": f"c:d:2,{RUNTIME}", "spark.sql.extensions": "x.Y", "spark.master": "local[1]"},
    )

    assert options["spark.jars.packages"] == f"{RUNTIME},a:b:1,c:d:2"
    assert options["spark.sql.extensions"].endswith("IcebergSparkSessionExtensions,x.Y")
    assert options["spark.master"] == "local[1]"
    assert of_catalog(options) == {"type": "rest", "uri": "http://other", "cache-enabled": "false"}


@pytest.mark.parametrize(
    ("versions", "runtime"),
    [
        (Versions(spark="3.5.9", iceberg="1.5.2"), "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.5.2"),
        (Versions(spark="3.5", scala="2.13"), "org.apache.iceberg:iceberg-spark-runtime-3.5_2.13:1.11.0"),
        (Versions(spark="4.0", iceberg="1.10.1"), "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.1"),
    ],
)
def test_versions_can_be_chosen(versions: Versions, runtime: str) -> None:
    assert session_options(versions=versions)["spark.jars.packages"] == runtime


def test_the_default_version_of_spark_is_the_installed_one() -> None:
    line = ".".join(importlib.metadata.version("pyspark").split(".")[:2])

    assert f"-runtime-{line}_" in session_options()["spark.jars.packages"]


@pytest.mark.parametrize(
    ("connection", "reason"),
    [
        (Connection(name="a.b"), "catalog 'a.b': a name in Spark has only letters"),
        (Connection(name=""), "catalog ''"),
        (Connection(uri="127.0.0.1:8181"), "uri '127.0.0.1:8181': expected the address of a server"),
        (Connection(uri="s3://bucket/lake"), "uri 's3://bucket/lake'"),
        (Connection(uri="http:///v1"), "uri 'http:///v1'"),
        (Connection(token=HUSH, credential="b:c"), "not both"),
        (Connection(io_impl="s4"), "io_impl 's4': expected hadoop, resolving, s3 or"),
    ],
)
def test_values_that_spark_would_misread_are_refused(connection: Connection, reason: str) -> None:
    with pytest.raises(BadRequest, match=reason):
        session_options(connection)


@pytest.mark.parametrize("versions", [Versions(spark="four"), Versions(iceberg="1.11"), Versions(spark="4")])
def test_an_invalid_version_is_refused(versions: Versions) -> None:
    with pytest.raises(BadRequest, match="expected something like"):
        session_options(versions=versions)


def test_secrets_are_not_printed() -> None:
    connection = Connection(token=HUSH, s3=S3Store(secret_access_key=HUSH, session_token=HUSH))

    assert HUSH not in repr(connection)
