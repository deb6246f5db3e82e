"""`sandur spark-config`: the same options in every form, each readable by its consumer."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from sandur.cli.configuration import render

RUNTIME = "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.11.0"


def spark_config(*arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", "from sandur.cli.main import run; run()", "spark-config", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def options_of(*arguments: str) -> dict[str, str]:
    done = spark_config("--json", *arguments)
    assert done.returncode == 0, done.stderr
    options: dict[str, str] = json.loads(done.stdout)
    return options


def test_the_default_is_the_local_server() -> None:
    options = options_of()

    assert options["spark.sql.catalog.sandur.uri"] == "http://127.0.0.1:8181"
    assert "spark.sql.catalog.sandur.warehouse" not in options
    assert options["spark.jars.packages"] == RUNTIME


def test_catalogs_have_their_own_or_another_name_in_spark() -> None:
    options = options_of("--catalog", "lake", "--catalog", "big=the.large.one", "--token", "t", "--uri", "http://h:1")

    assert options["spark.sql.catalog.lake.warehouse"] == "lake"
    assert options["spark.sql.catalog.big.warehouse"] == "the.large.one"
    assert {options[f"spark.sql.catalog.{name}.token"] for name in ("lake", "big")} == {"t"}
    assert {options[f"spark.sql.catalog.{name}.uri"] for name in ("lake", "big")} == {"http://h:1"}


def test_a_bucket_has_its_endpoint_and_its_keys_only_with_a_flag(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text(
        'store = "s3://bucket/p"\nport = 9000\n[s3]\nendpoint = "http://s3"\naccess_key_id = "id"\n'
        'secret_access_key = "hush"\n'
    )

    without, with_keys = options_of("--config", str(file)), options_of("--config", str(file), "--with-keys")

    assert without["spark.sql.catalog.sandur.s3.endpoint"] == "http://s3"
    assert without["spark.sql.catalog.sandur.uri"] == "http://127.0.0.1:9000"
    assert "hush" not in without.values()
    assert with_keys["spark.sql.catalog.sandur.s3.secret-access-key"] == "hush"


def test_a_server_that_gives_credentials_says_itself_where_the_bucket_is(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text(
        'store = "s3://bucket/p"\n[s3]\nendpoint = "http://s3"\naccess = "vend"\nrole_arn = "arn:aws:iam::1:role/t"\n'
        'access_key_id = "id"\nsecret_access_key = "hush"\n'
    )

    options = options_of("--config", str(file))

    assert "iceberg-aws-bundle" in options["spark.jars.packages"]
    assert options["spark.sql.catalog.sandur.io-impl"] == "org.apache.iceberg.aws.s3.S3FileIO"
    assert not [key for key in options if ".s3." in key]


def test_versions_are_chosen_by_flags() -> None:
    options = options_of("--spark", "3.5", "--iceberg", "1.5.2")

    assert options["spark.jars.packages"] == "org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.5.2"


def test_a_shell_reads_the_flags_correctly() -> None:
    options = {"spark.jars.packages": "a:b:1", "k": 'it\'s $HOME \\ "x"'}

    assert shlex.split(render(options, "submit")) == [
        "--packages",
        "a:b:1",
        "--conf",
        'k=it\'s $HOME \\ "x"',
    ]


def test_lines_of_a_file_keep_backslashes_as_java_reads_them() -> None:
    assert render({"a": "b", "c": "d\\e f"}, "properties").splitlines() == ["a b", "c d\\\\e f"]


def test_every_form_has_the_same_options() -> None:
    options = options_of("--catalog", "lake")

    flags = shlex.split(spark_config("--catalog", "lake", "--submit").stdout)
    lines = spark_config("--catalog", "lake", "--properties").stdout.splitlines()

    pairs = dict(flag.split("=", 1) for flag in flags[3::2])
    assert pairs | {"spark.jars.packages": flags[1]} == options
    assert dict(line.split(" ", 1) for line in lines) == options


def test_people_get_a_table_that_hides_secrets() -> None:
    done = spark_config("--token", "hush")

    assert "Options of a Spark session" in done.stdout
    assert "(hidden)" in done.stdout
    assert "hush" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("--json", "--submit"), "sandur: --json and --submit exclude each other: choose one"),
        (("--catalog", "=x"), "sandur: --catalog =x: expected NAME, or SPARK_NAME=NAME"),
        (
            ("--uri", "nowhere"),
            "sandur: uri 'nowhere': expected the address of a server, such as http://127.0.0.1:8181",
        ),
        (("--iceberg", "new"), "sandur: Iceberg version 'new': expected something like 1.11.0"),
    ],
)
def test_an_error_prints_one_line_and_exits_with_code_1(arguments: tuple[str, ...], reason: str) -> None:
    done = spark_config(*arguments)

    assert (done.returncode, done.stderr.strip(), done.stdout) == (1, reason, "")
