"""Settings: which source wins, and the error for an invalid setting."""

from pathlib import Path

import pytest

from sandur.errors import BadRequest
from sandur.setting_sources import load_settings, setting_keys
from sandur.settings import OidcSettings, Settings, duration_of, seconds_of


def test_every_setting_has_a_default() -> None:
    assert load_settings() == Settings()


def test_a_flag_beats_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text('store = "file"\nport = 1\nhost = "file"\n[s3]\nregion = "file"\npath_style = false\n')

    settings = load_settings(
        file=file,
        environment={"SANDUR_STORE": "environment", "SANDUR_PORT": "2", "SANDUR_S3_REGION": "environment", "HOME": "x"},
        flags={"store": "flag", "host": None},
    )

    assert (settings.store, settings.port, settings.host) == ("flag", 2, "file")
    assert (settings.s3.region, settings.s3.path_style) == ("environment", False)


def test_a_list_in_the_environment_is_separated_by_commas() -> None:
    settings = load_settings(environment={"SANDUR_ALLOWED_LOCATIONS": "s3://a,file:///b"})

    assert settings.allowed_locations == ("s3://a", "file:///b")


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"SANDUR_PROT": "1"}, "SANDUR_PROT in the environment: no such setting; did you mean port?"),
        ({"SANDUR_PORT": "many"}, "setting port in the environment: invalid value 'many'"),
        ({"SANDUR_PORT": "70000"}, "setting port in the environment: invalid value '70000'"),
        ({"SANDUR_FSYNC": "sometimes"}, "setting fsync in the environment: invalid value 'sometimes'"),
        ({"SANDUR_S3_PATH_STYLE": "perhaps"}, "setting s3.path_style in the environment: invalid value 'perhaps'"),
        (
            {"SANDUR_STAGE_TTL": "3 days"},
            "setting stage_ttl in the environment: invalid value '3 days': expected an ISO-8601",
        ),
        ({"SANDUR_ZZZZZZ": "1"}, "no such setting; known settings: store, fsync"),
    ],
)
def test_the_error_of_an_invalid_setting_has_its_name_and_source(environment: dict[str, str], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        load_settings(environment=environment)

    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stoer = 'x'", "setting stoer in file"),
        ("[s3]\nendpiont = 'x'", "did you mean s3.endpoint?"),
        ("port = 'x'", "setting port in file"),
        ("port = ", "not valid TOML"),
        ("store = 1", "setting store in file"),
        ("s3 = 1", "setting s3 in file"),
        ("[s3.deep]\nx = 1", "setting s3.deep in file"),
    ],
)
def test_the_error_of_an_invalid_file_has_its_name(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text(text)

    with pytest.raises(BadRequest) as caught:
        load_settings(file=file)

    assert message in str(caught.value)


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        load_settings(file=tmp_path / "none.toml")


def test_every_key_is_reachable_from_the_environment() -> None:
    variables = {key.replace(".", "_").upper() for key in setting_keys()}

    assert len(variables) == len(setting_keys())


@pytest.mark.parametrize(
    ("text", "seconds"), [("PT1H", 3600), ("PT72H", 259_200), ("P1DT12H", 129_600), ("PT1M30S", 90), ("P2D", 172_800)]
)
def test_a_duration_is_parsed_as_iso_8601(text: str, seconds: int) -> None:
    assert load_settings(flags={"stage_ttl": text}).stage_ttl == text
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "PT0S"), (999_999, "PT999999S"), (1_000_000, "P12D"), (14 * 86_400, "P14D"), (10**30, "P999999D")],
)
def test_a_duration_of_many_seconds_is_rounded_up_to_whole_days(seconds: int, text: str) -> None:
    assert duration_of(seconds) == text
    assert seconds_of(text) >= min(seconds, 999_999 * 86_400)


@pytest.mark.parametrize("text", ["", "P", "PT", "1H", "PT1H\n", "P1D T1H", "PT-1H", "PT1.5H", "P1Y", "PT1H1H"])
def test_an_invalid_duration_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="ISO-8601"):
        load_settings(flags={"stage_ttl": text})
    with pytest.raises(BadRequest, match="ISO-8601"):
        seconds_of(text)


def test_environment_variables_of_tests_are_not_settings() -> None:
    assert load_settings(environment={"SANDUR_UC_JARS": "connector.jar"}) == load_settings(environment={})


@pytest.mark.parametrize(
    ("key", "values"),
    [
        ("fsync", "always or never"),
        ("authentication", "off or on"),
        ("log_format", "text or json"),
        ("log_level", "debug or info or warning or error"),
    ],
)
def test_a_setting_with_few_values_lists_them(key: str, values: str) -> None:
    with pytest.raises(BadRequest, match=f"setting {key} in the flags: invalid value 'x': expected {values}$"):
        load_settings(flags={key: "x"})


def test_identity_providers_are_a_list_of_tables(tmp_path: Path) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text(
        """
        [[oidc]]
        issuer = "https://one.example"
        audience = "lake"
        groups_claim = "groups"

        [[oidc]]
        issuer = "https://two.example"
        audience = "lake"
        tenant = "acme"
        """
    )

    settings = load_settings(file=file)

    assert settings.oidc == (
        OidcSettings(issuer="https://one.example", audience="lake", groups_claim="groups"),
        OidcSettings(issuer="https://two.example", audience="lake", tenant="acme"),
    )


def test_identity_providers_in_the_environment_are_json() -> None:
    settings = load_settings(environment={"SANDUR_OIDC": '[{"issuer":"https://one.example","audience":"lake"}]'})

    assert settings.oidc == (OidcSettings(issuer="https://one.example", audience="lake"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[oidc]]\nissuer = 'https://x'", "missing required field `audience`"),
        ("[[oidc]]\nissuer = 'https://x'\naudience = 'y'\ngroup_claim = 'z'", "unknown field `group_claim`"),
        ("[[oidc]]\nissuer = 'https://x'\naudience = 'y'\nalgorithms = ['HS256']", "Invalid enum value 'HS256'"),
        ("token = 'hush'", "the shared secret has been replaced"),
        ("authentication = 'token'", "the shared secret has been replaced"),
    ],
)
def test_invalid_providers_and_retired_settings_are_refused(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "sandur.toml"
    file.write_text(text)

    with pytest.raises(BadRequest) as caught:
        load_settings(file=file)

    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_the_token_of_a_client_is_not_a_setting() -> None:
    assert load_settings(environment={"SANDUR_TOKEN": "x"}) == Settings()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"s3.access": "vend"}, "s3.role_arn is missing"),
        ({"s3.access": "vend", "s3.role_arn": "tables"}, "not the ARN of a role"),
        ({"s3.access": "sign", "s3.access_key_id": "a"}, "only one of them is set"),
        ({"s3.credential_lifetime": "PT14M"}, "expected PT15M to PT12H"),
        ({"s3.credential_lifetime": "PT13H"}, "expected PT15M to PT12H"),
        ({"s3.sts_endpoint": "sts.example"}, "is not a URL"),
        ({"gcs.sts_endpoint": "sts.example"}, "is not a URL"),
        ({"azure.access": "vend"}, "opens the whole container"),
        ({"azure.credential_lifetime": "PT14M"}, "expected PT15M to PT12H"),
        ({"azure.credential_lifetime": "P1D"}, "expected PT15M to PT12H"),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(flags: dict[str, str], text: str) -> None:
    with pytest.raises(BadRequest, match=text):
        load_settings(flags=flags)


def test_settings_of_temporary_credentials_that_fit_together_are_accepted() -> None:
    flags = {"s3.access": "vend", "s3.role_arn": "arn:aws-cn:iam::1:role/r", "s3.credential_lifetime": "PT12H"}

    assert load_settings(flags=flags).s3.access == "vend"


def test_a_claim_cannot_time_out_after_its_key_is_forgotten() -> None:
    flags: dict[str, object] = {"claim_timeout_ms": 60_001, "idempotency_key_lifetime": "PT1M"}

    with pytest.raises(BadRequest, match="claim_timeout_ms: 60001 is longer than idempotency_key_lifetime PT1M"):
        load_settings(flags=flags)
    assert load_settings(flags={**flags, "claim_timeout_ms": 60_000}).claim_timeout_ms == 60_000


def test_receipts_outlive_the_keys_whose_commits_they_prove() -> None:
    flags: dict[str, object] = {"receipt_retention": "P2D", "idempotency_key_lifetime": "P1DT1S"}

    with pytest.raises(BadRequest, match="receipt_retention: P2D is shorter than idempotency_key_lifetime P1DT1S"):
        load_settings(flags=flags)
    assert load_settings(flags={**flags, "idempotency_key_lifetime": "P1D"}).receipt_retention == "P2D"
