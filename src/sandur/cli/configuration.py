"""`sandur settings` and `sandur spark-config`: print what a client needs."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Final, Literal

import msgspec
from rich.console import Console
from rich.table import Table

from sandur.errors import BadRequest
from sandur.server.addresses import address_of
from sandur.setting_sources import environment_variable, load_settings, setting_keys
from sandur.settings import Settings
from sandur.spark import Connection, S3Store, Versions, session_options
from sandur.spark.sessions import PACKAGES, SECRET_KEYS

Form = Literal["table", "json", "submit", "properties"]

_HIDDEN: Final = "(hidden)"
_SECRETS: Final = (
    *("secret_access_key", "session_token", "account_key", "sas_token", "bearer_token"),
    *("admin_secret", "sealing_keys"),
)


def show_settings(*, store: str | None, config: Path | None, as_json: bool) -> None:
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})
    read = {key: attrgetter(key)(settings) for key in setting_keys()}
    values = {key: _HIDDEN if value and key.endswith(_SECRETS) else value for key, value in read.items()}
    if as_json:
        print(json.dumps(msgspec.to_builtins(values), indent=2))  # noqa: T201 - output for machines
        return
    table = Table("setting", "value", "environment", title="Settings")
    for key, value in values.items():
        table.add_row(key, str(value), environment_variable(key))
    Console().print(table)


@dataclass(frozen=True, kw_only=True)
class SparkConfigOptions:
    """The flags of `sandur spark-config`; catalogs are `NAME` or `SPARK_NAME=NAME`."""

    catalogs: Sequence[str] = ()
    uri: str | None = None
    token: str | None = None
    with_keys: bool = False
    profile: str | None = None


def output_form(*, as_json: bool, as_submit: bool, as_properties: bool) -> Form:
    """The output form of the flags; a table by default."""
    forms: dict[Form, bool] = {"json": as_json, "submit": as_submit, "properties": as_properties}
    chosen = [form for form, is_chosen in forms.items() if is_chosen]
    if len(chosen) > 1:
        raise BadRequest(f"--{chosen[0]} and --{chosen[1]} exclude each other: choose one")
    return chosen[0] if chosen else "table"


def connections(settings: Settings, flags: SparkConfigOptions) -> list[Connection]:
    """The connections of the catalogs; by default the server's default catalog as `sandur`."""
    uri = flags.uri or address_of(settings.host, settings.port)
    s3 = s3_store(settings, with_keys=flags.with_keys)
    found: list[Connection] = []
    for catalog in flags.catalogs:
        name, equals, warehouse = catalog.partition("=")
        if not name or (equals and not warehouse):
            raise BadRequest(f"--catalog {catalog}: expected NAME, or SPARK_NAME=NAME")
        found.append(Connection(name=name, uri=uri, warehouse=warehouse or name, token=flags.token, s3=s3))
    return found or [Connection(uri=uri, token=flags.token, s3=s3)]


def render(options: Mapping[str, str], form: Literal["json", "submit", "properties"]) -> str:
    """The options as JSON, as flags of spark-submit and spark-sql, or as lines of spark-defaults.conf."""
    match form:
        case "json":
            return json.dumps(dict(options), indent=2)
        case "submit":
            # On one line, for pasting and for $(sandur spark-config --submit).
            flags = [f"--packages {shlex.quote(options[PACKAGES])}"]
            flags += [f"--conf {shlex.quote(f'{key}={value}')}" for key, value in options.items() if key != PACKAGES]
            return " ".join(flags)
        case "properties":
            escapes = str.maketrans({"\\": r"\\", "\n": r"\n"})  # Those of a Java properties file.
            return "\n".join(f"{key} {value.translate(escapes)}" for key, value in options.items())


def show_spark_config(
    flags: SparkConfigOptions, *, form: Form, versions: Versions, store: str | None = None, config: Path | None = None
) -> None:
    settings = load_settings(file=config, environment=os.environ, flags={"store": store})
    if flags.profile:
        from sandur.client.sessions import load_login  # noqa: PLC0415 - only for logins

        login = load_login(flags.profile, os.environ, server=flags.uri)
        flags = replace(flags, uri=login.server, token=flags.token or login.token or None)
    found = connections(settings, flags)
    options = session_options(*found, versions=versions)
    if form == "table":
        _show_table(options, found, needs_token=settings.authentication == "on" and not flags.token)
        return
    print(render(options, form))  # noqa: T201 - output for machines


def _show_table(options: Mapping[str, str], found: Sequence[Connection], *, needs_token: bool) -> None:
    console = Console(highlight=False)
    table = Table("option", title="Options of a Spark session")
    table.add_column("value", overflow="fold")  # A truncated value is useless.
    for key, value in options.items():
        table.add_row(key, _HIDDEN if key.endswith(SECRET_KEYS) else value)
    console.print(table)
    if needs_token:
        console.print("The server requires a token: log in and pass --profile, or pass --token with an API key.")
    console.print(f"Table names in Spark: [bold]{found[0].name}.<namespace>.<table>[/]", soft_wrap=True)
    console.print("Other forms: --submit (flags), --properties (spark-defaults.conf), --json", soft_wrap=True)
    console.print("In Python: [bold]sandur.spark.session()[/]", soft_wrap=True)


def s3_store(settings: Settings, *, with_keys: bool = False) -> S3Store | None:
    """How Spark accesses the bucket of the store; None if the store is not on S3.

    A server that gives Spark access to the bucket also says where it is.
    """
    if not settings.store.startswith("s3://"):
        return None
    s3 = settings.s3
    if s3.access != "none" and not with_keys:
        return S3Store(path_style=False)
    where = S3Store(endpoint=s3.endpoint, region=s3.region, path_style=s3.path_style)
    if not with_keys:
        return where
    return replace(
        where,
        access_key_id=s3.access_key_id,
        secret_access_key=s3.secret_access_key,
        session_token=s3.session_token,
    )
