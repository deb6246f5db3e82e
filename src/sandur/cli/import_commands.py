"""The commands of `sandur import`. Each one imports its module when it runs."""

from typing import Annotated

import typer

from sandur.cli.flags import AllowOption, TargetFlags, target_command

app = typer.Typer()
group = typer.Typer(
    no_args_is_help=True,
    help="Import another catalog, or the tables of a folder. Files stay in place; the source is not changed.",
)
app.add_typer(group, name="import")

UrlArgument = Annotated[str, typer.Argument(metavar="URL", help="The address of the source")]
IntoOption = Annotated[
    str, typer.Option("--into", metavar="CATALOG", help="The catalog to import into; created if it is missing")
]
UpdateOption = Annotated[
    bool, typer.Option("--update", help="Move tables forward that changed only at the source since the last import")
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only print the plan")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask")]
TokenOption = Annotated[
    str, typer.Option("--source-token", metavar="TOKEN", envvar="SANDUR_SOURCE_TOKEN", help="A token of the source")
]
CredentialOption = Annotated[
    str,
    typer.Option(
        "--source-credential", metavar="ID:SECRET", envvar="SANDUR_SOURCE_CREDENTIAL", help="Log in with OAuth2"
    ),
]
OauthOption = Annotated[
    str, typer.Option("--oauth-uri", metavar="URL", help="Where to log in; default: the token endpoint of the source")
]
ScopeOption = Annotated[str, typer.Option("--scope", help="The scope of the login")]


@target_command(group, "rest")
def import_rest(  # noqa: PLR0913 - one parameter per flag
    flags: TargetFlags,
    url: UrlArgument,
    *,
    into: IntoOption,
    warehouse: Annotated[str, typer.Option("--warehouse", help="The warehouse or catalog at the source")] = "",
    namespace: Annotated[
        list[str] | None, typer.Option("--namespace", metavar="NAME", help="Only this one; repeatable")
    ] = None,
    update: UpdateOption = False,
    source_token: TokenOption = "",
    source_credential: CredentialOption = "",
    oauth_uri: OauthOption = "",
    scope: ScopeOption = "catalog",
    sigv4_region: Annotated[
        str, typer.Option("--sigv4-region", metavar="REGION", help="Sign requests as AWS services need it")
    ] = "",
    sigv4_service: Annotated[str, typer.Option("--sigv4-service", help="glue or s3tables")] = "glue",
    allow_location: AllowOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Import an Iceberg REST catalog: namespaces, tables by their current metadata files, views."""
    from sandur.cli import imports  # noqa: PLC0415 - starts fast
    from sandur.client.sources import SourceLogin  # noqa: PLC0415 - starts fast

    login = SourceLogin(source_token, source_credential, oauth_uri, scope, sigv4_region, sigv4_service)
    options = imports.ImportOptions(into, update, dry_run, yes)
    target = flags._replace(allowed_locations=tuple(allow_location or ()))
    imports.import_rest(url, options, target, warehouse=warehouse, namespaces=namespace or (), login=login)


@target_command(group, "unity")
def import_unity(  # noqa: PLR0913 - one parameter per flag
    flags: TargetFlags,
    url: UrlArgument,
    *,
    into: IntoOption,
    catalog: Annotated[str, typer.Option("--catalog", metavar="NAME", help="The catalog at the source")],
    schema: Annotated[
        list[str] | None, typer.Option("--schema", metavar="NAME", help="Only this one; repeatable")
    ] = None,
    source_token: TokenOption = "",
    source_credential: CredentialOption = "",
    oauth_uri: OauthOption = "",
    scope: ScopeOption = "catalog",
    allow_location: AllowOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Import a catalog of a Unity Catalog server: schemas, external tables, external volumes, functions."""
    from sandur.cli import imports  # noqa: PLC0415 - starts fast
    from sandur.client.sources import SourceLogin  # noqa: PLC0415 - starts fast

    login = SourceLogin(source_token, source_credential, oauth_uri, scope)
    options = imports.ImportOptions(into, is_dry=dry_run, is_confirmed=yes)
    target = flags._replace(allowed_locations=tuple(allow_location or ()))
    imports.import_unity(url, options, target, catalog=catalog, schemas=schema or (), login=login)


@target_command(group, "folder")
def import_folder(  # noqa: PLR0913 - one parameter per flag
    flags: TargetFlags,
    url: UrlArgument,
    *,
    into: IntoOption,
    namespace: Annotated[
        str | None, typer.Option("--namespace", metavar="NAME", help="For all tables; default: the folders above them")
    ] = None,
    update: UpdateOption = False,
    allow_location: AllowOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
) -> None:
    """Import the Iceberg and Delta tables below a folder or bucket, such as the warehouse of a Hadoop catalog.

    For millions of files, search with Spark: sandur run import.
    """
    from sandur.cli import imports  # noqa: PLC0415 - starts fast

    options = imports.ImportOptions(into, update, dry_run, yes)
    target = flags._replace(allowed_locations=tuple(allow_location or ()))
    imports.import_folder(url, options, target, namespace=namespace)
