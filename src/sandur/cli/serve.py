"""`sandur serve`: run the server and print how to connect each engine."""

import os
import shlex
import sys
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from rich.console import Console
from rich.text import Text

from sandur import __version__
from sandur.cli.configuration import s3_store
from sandur.server.addresses import address_of, is_loopback
from sandur.server.supervisor import Ports, serve
from sandur.setting_sources import load_settings
from sandur.settings import S3Settings, Settings
from sandur.spark import Connection, Versions, session_options
from sandur.spark.sessions import DEFAULT_REGION, DEFAULT_SPARK, PACKAGES

_BUCKET_ACCESS: Final = {
    "none": "engines access it directly, with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "vend": "engines get temporary credentials for the files of one table, and need no keys",
    "sign": "the server signs the requests of Spark, Flink and PyIceberg; other engines need keys",
    "static": "engines get the server's own keys, which open the whole bucket",
}
# Engines that cannot sign remotely need keys of their own then.
_NEEDS_KEYS: Final = frozenset({"none", "sign"})


def show_banner(
    console: Console, settings: Settings, url: str, *, activation: Path | None = None, grpc_port: int | None = None
) -> None:
    """Print the banner; `activation` is the script of an inactive virtual environment, or None."""
    console.print(Text(f"Sandur {__version__}", style="bold"), Text("one catalog, nothing but object storage"))
    for name, value in _facts(settings, url, grpc_port).items():
        console.print(Text(f"  {name:<15}", style="dim"), Text(value), sep="", soft_wrap=True)
    if activation:
        console.print(Text("\nIn another terminal, first", style="bold cyan"))
        console.print(Text(f"  source {shlex.quote(str(activation))}"), soft_wrap=True)
    for engine, lines in recipes(url, settings).items():
        console.print(Text(f"\n{engine}", style="bold cyan"))
        for line in lines:
            # Not wrapped: a wrapped line cannot be pasted.
            console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()


def recipes(url: str, settings: Settings) -> dict[str, list[str]]:
    """The lines that connect each engine.

    They never contain a token or the keys of a bucket, only an environment variable or `…` in their place. Where the
    server gives engines access to the bucket, they need no keys.
    """
    catalog, needs_token = settings.default_catalog, settings.authentication == "on"
    s3 = settings.s3 if settings.store.startswith("s3://") else None
    takes_keys = s3 if s3 and s3.access in _NEEDS_KEYS else None
    imported = "import os; " if needs_token else ""
    bearer = "'Bearer ' + os.environ['SANDUR_TOKEN']" if needs_token else "'Bearer any'"
    header = ' -H "Authorization: Bearer $SANDUR_TOKEN"' if needs_token else ""
    access = "TOKEN '…'" if needs_token else "AUTHORIZATION_TYPE 'none'"
    token, region = "…" if needs_token else "any", (s3.region or DEFAULT_REGION if s3 else "none")
    found = {
        "PyIceberg": [
            f"{imported}from pyiceberg.catalog import load_catalog",
            f"catalog = load_catalog('sandur', {_pyiceberg_options(url, settings, needs_token=needs_token)})",
        ],
        "Spark": _spark(url, catalog, settings),
        "Polars": _polars(s3),
        "DuckDB": [
            "INSTALL iceberg; LOAD iceberg;",
            *([_duckdb_secret(takes_keys)] if takes_keys else []),
            f"ATTACH '{catalog}' AS sandur (TYPE iceberg, ENDPOINT '{url}', {access});",
        ],
        "Delta tables, in DuckDB": [
            "INSTALL unity_catalog; LOAD unity_catalog; INSTALL delta; LOAD delta;",
            f"CREATE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{url}', AWS_REGION '{region}');",
            f"ATTACH '{catalog}' AS unity (TYPE unity_catalog);",
        ],
        "Unity Catalog, in Python": [
            f"{imported}import unitycatalog.client as uc",
            f"client = uc.ApiClient(uc.Configuration(host='{url}/api/2.1/unity-catalog'))",
            f"client.set_default_header('Authorization', {bearer})",
        ],
        "curl": [
            f"curl '{url}/v1/config?warehouse={catalog}'{header}",
            f"curl '{url}/v1/{catalog}/namespaces'{header}",
        ],
    }
    if s3:  # Trino cannot read a folder.
        found["Trino (etc/catalog/sandur.properties)"] = _trino(url, catalog, s3, needs_token=needs_token)
    return found


def _facts(settings: Settings, url: str, grpc_port: int | None) -> dict[str, str]:
    if settings.authentication == "on":
        access = "every request needs a token or an API key"
    elif is_loopback(settings.host):
        access = "open to everyone on this machine"
    else:
        access = "open to everyone"
    facts = {
        "web UI": f"{url}/ui",
        "store": settings.store,
        "Iceberg REST": f"{url}/iceberg (and {url})",
        "Unity Catalog": f"{url}/api/2.1/unity-catalog",
        "Delta": f"{url}/api/2.1/unity-catalog/delta/v1",
        "catalog": settings.default_catalog,
        "workers": str(settings.workers),
        "authentication": f"{settings.authentication}: {access}",
        "health": f"{url}/healthz  {url}/readyz  {url}/metrics",
    }
    if grpc_port is not None:
        address = address_of(settings.host, grpc_port).removeprefix("http://")
        facts["gRPC"] = f"{address} ({'TLS' if settings.grpc.certificate else 'no TLS'})"
    if settings.store.startswith("s3://"):
        facts["bucket"] = _BUCKET_ACCESS[settings.s3.access]
    return facts


def _spark(url: str, catalog: str, settings: Settings) -> list[str]:
    token = "$SANDUR_TOKEN" if settings.authentication == "on" else None
    connection = Connection(uri=url, warehouse=catalog, token=token, s3=s3_store(settings))
    options = session_options(connection, versions=Versions(spark=DEFAULT_SPARK))
    packages = options.pop(PACKAGES)
    return [
        f"spark-sql --packages {packages} {' '.join(f'--conf {key}={value}' for key, value in options.items())}",
        f"sandur spark-config --uri {url} --catalog sandur={catalog}    # these options as flags, as a file or as JSON",
    ]


def _pyiceberg_options(url: str, settings: Settings, *, needs_token: bool) -> str:
    token = ", token=os.environ['SANDUR_TOKEN']" if needs_token else ""
    needs_keys = settings.store.startswith("s3://") and settings.s3.access == "none"
    options = {"s3.endpoint": settings.s3.endpoint, "s3.region": settings.s3.region} if needs_keys else {}
    given = {key: value for key, value in options.items() if value}
    store = f", **{given}" if given else ""
    return f"type='rest', uri='{url}', warehouse='{settings.default_catalog}'{token}{store}"


def _polars(s3: S3Settings | None) -> list[str]:
    imported = "import polars as pl    # with the catalog of PyIceberg above"
    if s3 is None or s3.access in _NEEDS_KEYS:
        return [imported, "pl.scan_iceberg(catalog.load_table('NAMESPACE.TABLE')).collect()"]
    return [
        imported,
        "table = catalog.load_table('NAMESPACE.TABLE')",
        "files = {key: value for key, value in table.io.properties.items() if key.startswith('s3.')}",
        "pl.scan_iceberg(table, storage_options=files).collect()",
    ]


def _duckdb_secret(s3: S3Settings) -> str:
    parts = ["TYPE s3", "KEY_ID '…'", "SECRET '…'", f"REGION '{s3.region or DEFAULT_REGION}'"]
    if s3.endpoint:
        address = urlsplit(s3.endpoint)
        parts += [f"ENDPOINT '{address.netloc}'", f"USE_SSL {'true' if address.scheme == 'https' else 'false'}"]
    if s3.path_style:
        parts += ["URL_STYLE 'path'"]
    return f"CREATE SECRET ({', '.join(parts)});"


def _trino(url: str, catalog: str, s3: S3Settings, *, needs_token: bool) -> list[str]:
    lines = [
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        f"iceberg.rest-catalog.uri={url}",
        f"iceberg.rest-catalog.warehouse={catalog}",
        "fs.native-s3.enabled=true",
        f"s3.region={s3.region or DEFAULT_REGION}",
    ]
    if s3.access in _NEEDS_KEYS:
        lines += ["s3.aws-access-key=${ENV:AWS_ACCESS_KEY_ID}", "s3.aws-secret-key=${ENV:AWS_SECRET_ACCESS_KEY}"]
    else:
        lines += ["iceberg.rest-catalog.vended-credentials-enabled=true"]
    if s3.endpoint:
        lines += [f"s3.endpoint={s3.endpoint}"]
    if s3.path_style:
        lines += ["s3.path-style-access=true"]
    if needs_token:
        lines += ["iceberg.rest-catalog.security=OAUTH2", "iceberg.rest-catalog.oauth2.token=${ENV:SANDUR_TOKEN}"]
    return lines


def run_server(*, config: Path | None, flags: dict[str, object]) -> None:
    settings = load_settings(file=config, environment=os.environ, flags=flags)
    code = serve(settings, lambda ports: _announce(settings, ports))
    if code:
        raise SystemExit(code)


def _announce(settings: Settings, ports: Ports) -> None:
    url = address_of(settings.host, ports.http)
    show_banner(Console(highlight=False), settings, url, activation=_activation(), grpc_port=ports.grpc)
    # The last line, in one write: programs that start the server wait for it.
    print(f"Sandur is ready at {url}", flush=True)  # noqa: T201 - output for people and machines


def _activation() -> Path | None:
    """The activation script of this virtual environment; None if it is active or missing."""
    script = Path(sys.prefix) / "bin" / "activate"
    is_active = os.environ.get("VIRTUAL_ENV") == sys.prefix
    return script if script.exists() and not is_active else None
