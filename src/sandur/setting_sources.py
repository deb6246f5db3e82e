"""The sources of settings: a TOML file, the environment (`SANDUR_…`) and flags; the later source wins."""

import difflib
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import msgspec

from sandur.errors import BadRequest
from sandur.settings import AzureSettings, Duration, GcsSettings, GrpcSettings, OidcSettings, Settings, seconds_of

ENVIRONMENT_PREFIX = "SANDUR_"
# Not settings: what clients use, and where the Spark tests find their connector.
_NOT_SETTINGS = frozenset({"SANDUR_PROFILE", "SANDUR_SERVER", "SANDUR_TOKEN", "SANDUR_UC_JARS"})

_DAY_SECONDS = 86_400


def load_settings(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Settings:
    """Merge all sources: a flag overrides the environment, which overrides the file, which overrides the default.

    Flags have the names of keys (`s3.endpoint`); a flag that is None is not set. Raises BadRequest, naming the source,
    for an unknown key or an invalid value.
    """
    merged: dict[str, object] = {}
    for source, values in (
        (f"file {file}", _from_file(file) if file else {}),
        ("the environment", _from_environment(environment or {})),
        ("the flags", {key: value for key, value in (flags or {}).items() if value is not None}),
    ):
        for key, value in values.items():
            merged[key] = _checked(source, key, value)
    return _fitting(msgspec.convert(_nested(merged), Settings))


METRICS_TABLES_MAX = 200
CREDENTIAL_SECONDS_MIN = 900
CREDENTIAL_SECONDS_MAX = 12 * 3_600


def _fitting(settings: Settings) -> Settings:
    """The settings themselves. Raises BadRequest if some of them do not fit together."""
    s3 = settings.s3
    if s3.access == "vend" and not s3.role_arn:
        raise BadRequest(
            "setting s3.access is 'vend', and s3.role_arn is missing: set the role that temporary credentials are "
            "issued for"
        )
    if s3.role_arn and not re.match(r"arn:[a-z0-9-]+:iam:", s3.role_arn):
        raise BadRequest(
            f"setting s3.role_arn: {s3.role_arn!r} is not the ARN of a role (arn:aws:iam::ACCOUNT:role/NAME)"
        )
    if s3.access != "none" and bool(s3.access_key_id) != bool(s3.secret_access_key):
        raise BadRequest("settings s3.access_key_id and s3.secret_access_key: only one of them is set")
    if not CREDENTIAL_SECONDS_MIN <= seconds_of(s3.credential_lifetime) <= CREDENTIAL_SECONDS_MAX:
        raise BadRequest(f"setting s3.credential_lifetime is {s3.credential_lifetime}: expected PT15M to PT12H")
    if s3.sts_endpoint and not s3.sts_endpoint.startswith(("http://", "https://")):
        raise BadRequest(f"setting s3.sts_endpoint: {s3.sts_endpoint!r} is not a URL: expected http:// or https://")
    if len(settings.metrics_tables) > METRICS_TABLES_MAX:
        raise BadRequest(
            f"setting metrics_tables has {len(settings.metrics_tables)} tables: expected at most {METRICS_TABLES_MAX}; "
            "system.commits has the commits of all tables"
        )
    _check_clouds(settings.gcs, settings.azure)
    _check_claims(settings)
    _check_grpc(settings.grpc)
    if settings.traces_endpoint and not settings.traces_endpoint.startswith(("http://", "https://")):
        raise BadRequest(f"setting traces_endpoint: {settings.traces_endpoint!r} is not a URL: expected http(s)://")
    return settings


def _check_clouds(gcs: GcsSettings, azure: AzureSettings) -> None:
    if gcs.sts_endpoint and not gcs.sts_endpoint.startswith(("http://", "https://")):
        raise BadRequest(f"setting gcs.sts_endpoint: {gcs.sts_endpoint!r} is not a URL: expected http:// or https://")
    if azure.access == "vend" and not azure.hierarchical:
        raise BadRequest(
            "setting azure.access is 'vend', and azure.hierarchical is false: without a hierarchical namespace, a "
            "signature for one table opens the whole container"
        )
    if not CREDENTIAL_SECONDS_MIN <= seconds_of(azure.credential_lifetime) <= CREDENTIAL_SECONDS_MAX:
        raise BadRequest(f"setting azure.credential_lifetime is {azure.credential_lifetime}: expected PT15M to PT12H")


def _check_grpc(grpc: GrpcSettings) -> None:
    if bool(grpc.certificate) != bool(grpc.private_key):
        raise BadRequest("settings grpc.certificate and grpc.private_key: only one of them is set")
    if grpc.client_ca and not grpc.certificate:
        raise BadRequest("setting grpc.client_ca needs grpc.certificate: certificates of clients are part of TLS")
    if not seconds_of(grpc.connection_age):
        raise BadRequest("setting grpc.connection_age is zero: expected at least PT1S")


def _check_claims(settings: Settings) -> None:
    lifetime = settings.idempotency_key_lifetime
    if settings.claim_timeout_ms > seconds_of(lifetime) * 1_000:
        raise BadRequest(
            f"setting claim_timeout_ms: {settings.claim_timeout_ms} is longer than idempotency_key_lifetime "
            f"{lifetime}, so that a key would be forgotten before a retry may take it over; change one of them"
        )
    if seconds_of(settings.receipt_retention) < seconds_of(lifetime) + _DAY_SECONDS:
        raise BadRequest(
            f"setting receipt_retention: {settings.receipt_retention} is shorter than idempotency_key_lifetime "
            f"{lifetime} and a day, so that a retry may not find the receipt of its commit; change one of them"
        )


def setting_keys() -> Mapping[str, type]:
    """Every key with its type; a key in a section is `section.key`."""
    return dict(_keys(Settings, ""))


def environment_variable(key: str) -> str:
    """The environment variable that sets a key: `s3.endpoint` is `SANDUR_S3_ENDPOINT`."""
    return ENVIRONMENT_PREFIX + key.replace(".", "_").upper()


def _keys(section: type[msgspec.Struct], prefix: str) -> Iterator[tuple[str, type]]:
    for field in msgspec.structs.fields(section):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _keys(field.type, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field.type


def _from_file(file: Path) -> dict[str, object]:
    try:
        document = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadRequest(f"settings file {file}: cannot be read: {error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"settings file {file}: not valid TOML: {error}") from error
    flat: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": inner_value for inner, inner_value in value.items()}
        else:
            flat[key] = value
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    keys = {environment_variable(key): key for key in setting_keys()}
    return {
        keys.get(name, name): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _NOT_SETTINGS
    }


_RETIRED = (
    "the shared secret has been replaced by principals with secrets of their own: set authentication = 'on', remove "
    "token, and give every client a principal (docs/operating.md, section Migrating from the shared secret)"
)


def _checked(source: str, key: str, value: object) -> object:
    kinds = setting_keys()
    if key == "token" or (key, value) == ("authentication", "token"):
        raise BadRequest(f"setting {key} in {source}: {_RETIRED}")
    if key not in kinds:
        close = difflib.get_close_matches(key.removeprefix(ENVIRONMENT_PREFIX).lower(), kinds, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; known settings: {', '.join(kinds)}"
        raise BadRequest(f"setting {key} in {source}: no such setting{hint}")
    kind = kinds[key]
    try:
        if isinstance(value, str) and kind == tuple[str, ...]:
            value = tuple(part for part in value.split(",") if part)
        elif isinstance(value, str) and kind == tuple[OidcSettings, ...]:
            value = msgspec.json.decode(value)
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.DecodeError as error:
        reason = str(error)
        if kind == Duration:
            reason = "expected an ISO-8601 duration such as PT1H or P1DT12H"
        elif get_origin(kind) is Literal:
            reason = f"expected {' or '.join(get_args(kind))}"
        raise BadRequest(f"setting {key} in {source}: invalid value {value!r}: {reason}") from error


def _nested(flat: Mapping[str, object]) -> dict[str, object]:
    nested: defaultdict[str, dict[str, object]] = defaultdict(dict)
    for key, value in flat.items():
        section, _, inner = key.rpartition(".")
        nested[section][inner] = value
    return nested.pop("", {}) | nested
