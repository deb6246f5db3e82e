"""The banner of `sandur serve`."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from sandur.cli.serve import recipes, show_banner
from sandur.setting_sources import load_settings
from sandur.settings import Settings

S3_ENVIRONMENT = {
    "SANDUR_S3_ENDPOINT": "http://s3.example:9000",
    "SANDUR_S3_REGION": "eu-north-1",
    "SANDUR_S3_ACCESS_KEY_ID": "hush-id",
    "SANDUR_S3_SECRET_ACCESS_KEY": "hush-key",
}


def banner_text(settings: Settings, width: int = 40) -> str:
    printed = io.StringIO()
    show_banner(Console(file=printed, width=width, highlight=False), settings, "http://127.0.0.1:8181")
    return printed.getvalue()


def test_lines_to_paste_are_not_wrapped_in_a_narrow_terminal() -> None:
    text = banner_text(Settings(), width=20)

    for lines in recipes("http://127.0.0.1:8181", Settings()).values():
        for line in lines:
            assert f"  {line}\n" in text


def test_the_banner_prints_how_to_activate_an_inactive_environment() -> None:
    printed = io.StringIO()
    console = Console(file=printed, width=20)

    show_banner(console, Settings(), "http://h:1", activation=Path("/home/me/my tools/bin/activate"))

    text = printed.getvalue()
    assert "\n  source '/home/me/my tools/bin/activate'\n" in text
    assert text.index("/ui\n") < text.index("store") < text.index("source ") < text.index("PyIceberg")
    assert "source " not in banner_text(Settings())


def test_the_address_of_the_ui_is_the_first_that_is_printed() -> None:
    printed = io.StringIO()
    show_banner(Console(file=printed), Settings(), "http://h:1", activation=Path("/bin/activate"))

    assert [line.strip() for line in printed.getvalue().splitlines()][1] == "web UI         http://h:1/ui"


def test_the_banner_prints_the_settings() -> None:
    text = banner_text(load_settings(flags={"store": "s3://bucket/p", "workers": 3, "default_catalog": "lake"}))

    for text_part in ("s3://bucket/p", "lake", "/iceberg", "/healthz", "/metrics", "open to everyone"):
        assert text_part in text


def test_a_token_is_printed_as_its_variable_and_never_as_its_value() -> None:
    text = banner_text(load_settings(flags={"authentication": "on", "admin_secret": "hush"}))

    assert "hush" not in text
    assert text.count("SANDUR_TOKEN") >= 3


ON_S3 = load_settings(flags={"store": "s3://b/p", "default_catalog": "lake"}, environment=S3_ENVIRONMENT)


@pytest.mark.parametrize("engine", ["PyIceberg", "Spark", "DuckDB", "Delta tables", "Trino", "curl"])
def test_every_recipe_has_the_address_and_the_catalog(engine: str) -> None:
    (lines,) = [lines for name, lines in recipes("http://h:1", ON_S3).items() if name.startswith(engine)]

    assert "http://h:1" in "\n".join(lines)
    assert "lake" in "\n".join(lines)


@pytest.mark.parametrize("engine", ["PyIceberg", "Spark", "DuckDB", "Trino"])
def test_recipes_have_the_endpoint_of_the_bucket_but_not_its_keys(engine: str) -> None:
    (lines,) = [lines for name, lines in recipes("http://h:1", ON_S3).items() if name.startswith(engine)]

    assert "s3.example:9000" in "\n".join(lines)
    assert "hush" not in banner_text(ON_S3)


def test_the_banner_shows_unity_delta_and_polars() -> None:
    text = banner_text(Settings())

    for line in (
        "Unity Catalog  http://127.0.0.1:8181/api/2.1/unity-catalog",
        "Delta          http://127.0.0.1:8181/api/2.1/unity-catalog/delta/v1",
        "import unitycatalog.client as uc",
        "CREATE SECRET (TYPE unity_catalog, TOKEN 'any', ENDPOINT 'http://127.0.0.1:8181', AWS_REGION 'none');",
        "pl.scan_iceberg(",
    ):
        assert line in text


def test_the_banner_says_who_may_use_the_server() -> None:
    assert "off: open to everyone on this machine" in banner_text(Settings())
    assert "on: every request needs a token or an API key" in banner_text(Settings(authentication="on"))


def test_there_is_no_trino_recipe_for_a_folder() -> None:
    assert not [name for name in recipes("http://h:1", Settings()) if "Trino" in name]


VENDING = {**S3_ENVIRONMENT, "SANDUR_S3_ACCESS": "vend", "SANDUR_S3_ROLE_ARN": "arn:aws:iam::1:role/tables"}


def test_no_recipe_has_a_place_for_keys_if_the_server_gives_credentials() -> None:
    settings = load_settings(flags={"store": "s3://b/p"}, environment=VENDING)

    text = banner_text(settings)

    for key in ("AWS_ACCESS_KEY_ID", "KEY_ID", "s3.aws-access-key", "hush"):
        assert key not in text
    assert "iceberg.rest-catalog.vended-credentials-enabled=true" in text
    assert "temporary credentials" in text


def test_engines_that_cannot_sign_remotely_have_a_place_for_keys_if_the_server_signs() -> None:
    settings = load_settings(flags={"store": "s3://b/p"}, environment={**VENDING, "SANDUR_S3_ACCESS": "sign"})

    found = {name: "\n".join(lines) for name, lines in recipes("http://h:1", settings).items()}

    assert "KEY_ID" in found["DuckDB"]
    assert "s3.endpoint" not in found["PyIceberg"]
