"""One typed settings object, read from a TOML file, the environment (`SANDUR_…`) and flags, the later winning."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from sandur.errors import BadRequest

ENVIRONMENT_PREFIX = "SANDUR_"
_FOR_TESTS = frozenset({"SANDUR_UC_JARS"})  # Where Spark's tests find a connector: no setting, and no mistake.

_DURATION = r"^P(?=[0-9T])(?:([0-9]{1,6})D)?(?:T(?=[0-9])(?:([0-9]{1,6})H)?(?:([0-9]{1,6})M)?(?:([0-9]{1,6})S)?)?\Z"

Natural = Annotated[int, msgspec.Meta(ge=1)]
Duration = Annotated[str, msgspec.Meta(pattern=_DURATION)]
Port = Annotated[int, msgspec.Meta(ge=0, le=65_535)]


class S3Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach S3. What is empty comes from the usual AWS environment variables."""

    endpoint: str = ""
    region: str = ""
    path_style: bool = True
    access_key_id: str = ""
    secret_access_key: str = ""
    session_token: str = ""


class GcsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach Google Cloud Storage. What is empty comes from the application's default credentials."""

    endpoint: str = ""
    bearer_token: str = ""
    service_account: str = ""


class AzureSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach Azure Blob Storage. What is empty comes from the usual Azure environment variables."""

    endpoint: str = ""
    account_name: str = ""
    account_key: str = ""
    sas_token: str = ""


class UnityCatalogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the Unity Catalog API is served. Without the index every list reads what it lists: slow, and always right."""

    preview_index_enabled: bool = True


class RetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How often and how patiently a storage call is tried again."""

    tries_max: Natural = 4
    first_wait_ms: Natural = 50
    wait_max_ms: Natural = 2_000


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Everything that can be set, with its default.

    An empty `tenant` or `workspace` lets each request choose; otherwise every request is in the one that is set.
    """

    store: str = "./sandur-data"
    fsync: Literal["always", "never"] = "always"
    host: str = "127.0.0.1"
    port: Port = 8181
    workers: Natural = 1
    default_catalog: str = "main"
    allowed_locations: tuple[str, ...] = ()
    commit_attempts_max: Natural = 32
    transaction_timeout_ms: Natural = 10_000
    claim_timeout_ms: Natural = 600_000
    idempotency_key_lifetime: Duration = "PT1H"
    stage_create: bool = True
    delta_unpublished_max: Natural = 10
    delta_waive_deletion_vectors: bool = False
    stage_ttl: Duration = "PT72H"
    name_retention: Duration = "P1D"
    orphan_retention: Duration = "P1D"
    receipt_retention: Duration = "P90D"
    report_retention: Duration = "P30D"
    purge_delay: Duration = "PT10M"
    janitors: bool = True
    janitor_interval: Duration = "PT15M"
    janitor_objects_max: Natural = 10_000
    plan_ttl: Duration = "PT10M"
    plan_wait: Duration = "PT10S"
    plan_inline_files_max: Natural = 1_000
    plan_task_files: Annotated[int, msgspec.Meta(ge=1, le=100_000)] = 128
    plan_cache_bytes_max: Natural = 256 << 20
    plan_store_bytes_max: Annotated[int, msgspec.Meta(ge=0)] = 1 << 30
    tenant: str = ""
    workspace: str = ""
    authentication: Literal["off", "token"] = "off"
    token: str = ""
    allow_unauthenticated: bool = False
    request_bytes_max: Natural = 32 << 20
    request_depth_max: Annotated[int, msgspec.Meta(ge=1, le=500)] = 200
    requests_at_once_max: Natural = 512
    shutdown_timeout: Duration = "PT30S"
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    s3: S3Settings = S3Settings()
    gcs: GcsSettings = GcsSettings()
    azure: AzureSettings = AzureSettings()
    retry: RetrySettings = RetrySettings()
    unity_catalog: UnityCatalogSettings = UnityCatalogSettings()


def load_settings(
    *, file: Path | None = None, environment: Mapping[str, str] | None = None, flags: Mapping[str, object] | None = None
) -> Settings:
    """The settings of all sources; a flag beats the environment, which beats the file, which beats the default.

    Flags are named like keys (`s3.endpoint`); those that are None were not given. A key nobody knows, or a value of the
    wrong kind, is a BadRequest that says where it stands.
    """
    merged: dict[str, object] = {}
    for source, values in (
        (f"file {file}", _from_file(file) if file else {}),
        ("the environment", _from_environment(environment or {})),
        ("the flags", {key: value for key, value in (flags or {}).items() if value is not None}),
    ):
        for key, value in values.items():
            merged[key] = _checked(source, key, value)
    return msgspec.convert(_nested(merged), Settings)


def seconds_of(duration: str) -> int:
    """How long an ISO-8601 duration is; BadRequest for a text that is none."""
    parts = re.match(_DURATION, duration)
    if not parts:
        raise BadRequest(f"duration {duration!r}: expected ISO-8601 such as PT1H or P1DT12H")
    days, hours, minutes, seconds = (int(part or 0) for part in parts.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def setting_keys() -> Mapping[str, type]:
    """Every key, sections as `section.key`, with its type."""
    return dict(_keys(Settings, ""))


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
        raise BadRequest(f"settings file {file}: is not TOML: {error}") from error
    flat: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": inner_value for inner, inner_value in value.items()}
        else:
            flat[key] = value
    return flat


def _from_environment(environment: Mapping[str, str]) -> dict[str, object]:
    spelled = {ENVIRONMENT_PREFIX + key.replace(".", "_").upper(): key for key in setting_keys()}
    return {
        spelled.get(name, name): value
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in _FOR_TESTS
    }


def _checked(source: str, key: str, value: object) -> object:
    kinds = setting_keys()
    if key not in kinds:
        close = difflib.get_close_matches(key.removeprefix(ENVIRONMENT_PREFIX).lower(), kinds, n=1)
        hint = f"; did you mean {close[0]}?" if close else f"; there are {', '.join(kinds)}"
        raise BadRequest(f"setting {key} in {source}: no such setting{hint}")
    kind = kinds[key]
    if isinstance(value, str) and kind is not str and kind == tuple[str, ...]:
        value = tuple(part for part in value.split(",") if part)
    try:
        return msgspec.convert(value, kind, strict=not isinstance(value, str))
    except msgspec.ValidationError as error:
        reason = "expected an ISO-8601 duration such as PT1H or P1DT12H" if kind == Duration else str(error)
        raise BadRequest(f"setting {key} in {source}: {value!r} is not good: {reason}") from error


def _nested(flat: Mapping[str, object]) -> dict[str, object]:
    nested: dict[str, object] = {}
    for key, value in flat.items():
        section, _, inner = key.rpartition(".")
        if section:
            part = nested.setdefault(section, {})
            if isinstance(part, dict):
                part[inner] = value
        else:
            nested[key] = value
    return nested
