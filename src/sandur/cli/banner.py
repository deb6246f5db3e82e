"""What the server says when it is ready: what it serves, and lines to paste into each engine."""

from rich.console import Console
from rich.text import Text

from sandur import __version__
from sandur.settings import Settings
from sandur.spark import Connection, Versions, session_options
from sandur.spark.options import PACKAGES
from sandur.spark.versions import DEFAULT_SPARK


def show_banner(console: Console, settings: Settings, url: str) -> None:
    console.print(Text(f"Sandur {__version__}", style="bold"), Text("one catalog, nothing but object storage"))
    for name, value in _facts(settings, url).items():
        console.print(Text(f"  {name:<15}", style="dim"), Text(value), sep="", soft_wrap=True)
    for engine, lines in recipes(url, settings.default_catalog, needs_token=settings.authentication == "token").items():
        console.print(Text(f"\n{engine}", style="bold cyan"))
        for line in lines:
            # Not wrapped: a broken line cannot be pasted.
            console.print(Text(f"  {line}"), soft_wrap=True)
    console.print()


def recipes(url: str, catalog: str, *, needs_token: bool) -> dict[str, list[str]]:
    """How each engine connects, line by line. A token is told by its place, never by its value."""
    return {
        "PyIceberg": _pyiceberg(url, catalog, needs_token=needs_token),
        "Spark": _spark(url, catalog, needs_token=needs_token),
        "DuckDB": _duckdb(url, catalog, needs_token=needs_token),
        "Trino (etc/catalog/sandur.properties)": _trino(url, catalog, needs_token=needs_token),
        "curl": _curl(url, catalog, needs_token=needs_token),
    }


def _facts(settings: Settings, url: str) -> dict[str, str]:
    access = "a bearer token" if settings.authentication == "token" else "nobody is asked who they are"
    return {
        "store": settings.store,
        "Iceberg REST": f"{url}/iceberg (and {url})",
        "catalog": settings.default_catalog,
        "workers": str(settings.workers),
        "authentication": f"{settings.authentication}: {access}",
        "health": f"{url}/healthz  {url}/readyz  {url}/metrics",
    }


def _spark(url: str, catalog: str, *, needs_token: bool) -> list[str]:
    connection = Connection(uri=url, warehouse=catalog, token="$SANDUR_TOKEN" if needs_token else None)
    options = session_options(connection, versions=Versions(spark=DEFAULT_SPARK))
    packages = options.pop(PACKAGES)
    return [
        f"spark-sql --packages {packages} {' '.join(f'--conf {key}={value}' for key, value in options.items())}",
        f"sandur spark-config --uri {url} --catalog sandur={catalog}    # these options as flags, as a file or as JSON",
    ]


def _curl(url: str, catalog: str, *, needs_token: bool) -> list[str]:
    token = ' -H "Authorization: Bearer $SANDUR_TOKEN"' if needs_token else ""
    return [f"curl '{url}/v1/config?warehouse={catalog}'{token}", f"curl '{url}/v1/{catalog}/namespaces'{token}"]


def _pyiceberg(url: str, catalog: str, *, needs_token: bool) -> list[str]:
    token = ", token=os.environ['SANDUR_TOKEN']" if needs_token else ""
    return [
        f"{'import os; ' if needs_token else ''}from pyiceberg.catalog import load_catalog",
        f"catalog = load_catalog('sandur', type='rest', uri='{url}', warehouse='{catalog}'{token})",
    ]


def _duckdb(url: str, catalog: str, *, needs_token: bool) -> list[str]:
    access = "TOKEN '…'" if needs_token else "AUTHORIZATION_TYPE 'none'"
    return [
        "INSTALL iceberg; LOAD iceberg;",
        f"ATTACH '{catalog}' AS sandur (TYPE iceberg, ENDPOINT '{url}', {access});",
    ]


def _trino(url: str, catalog: str, *, needs_token: bool) -> list[str]:
    lines = [
        "connector.name=iceberg",
        "iceberg.catalog.type=rest",
        f"iceberg.rest-catalog.uri={url}",
        f"iceberg.rest-catalog.warehouse={catalog}",
    ]
    if needs_token:
        lines += ["iceberg.rest-catalog.security=OAUTH2", "iceberg.rest-catalog.oauth2.token=${ENV:SANDUR_TOKEN}"]
    return lines
