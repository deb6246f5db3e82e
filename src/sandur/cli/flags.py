"""The flags that many commands share."""

import functools
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, get_args

import typer

from sandur.errors import BadRequest

Format = Literal["table", "json", "jsonl", "csv"]
Shared = Mapping[str, tuple[object, object]]
"""Flags that many commands have: the annotation and the default of each, by its name."""

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="A folder, file://, s3://, gs://, az:// or memory:"),
]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="A TOML file with settings")]
AllowOption = Annotated[
    list[str] | None,
    typer.Option("--allow-location", metavar="URL", help="Where tables may lie outside the store; repeatable"),
]
UserOption = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="Who makes the change; default: the user of the operating system"),
]
_OUTPUTS = ("table", "json")
_FORMATS: tuple[Format, ...] = get_args(Format)


class ServerFlags(NamedTuple):
    """The flags of a command that acts on a server; None is what the environment or the current profile says."""

    profile: str | None = None
    server: str | None = None
    as_json: bool = False


class TargetFlags(NamedTuple):
    """The flags of a command that acts on a server or on a store; None is what the environment or the profile says."""

    profile: str | None = None
    server: str | None = None
    store: str | None = None
    config: Path | None = None
    user: str | None = None
    output: Format = "table"
    allowed_locations: tuple[str, ...] = ()


class StoreOrServerFlags(NamedTuple):
    """The flags of a command that acts on the store of the settings, unless a flag names a server."""

    server: str | None = None
    profile: str | None = None
    store: str | None = None
    config: Path | None = None
    user: str | None = None
    as_json: bool = False

    @property
    def target(self) -> TargetFlags | None:
        """The server; None if the command acts on the store itself. Raises BadRequest for both."""
        if not self.server and not self.profile:
            return None
        if self.store:
            raise BadRequest("--store excludes --server and --profile: choose one")
        return TargetFlags(profile=self.profile, server=self.server)


_Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The profile; default: SANDUR_PROFILE, or the current one"),
]
_Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="Another server than that of the profile")]
_Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="table or json")]
_AnyOutput = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="table, json, jsonl or csv")]
_Store = Annotated[str | None, typer.Option("--store", metavar="URL", help="Work on this store itself, as its owner")]
_Config = Annotated[Path | None, typer.Option("--config", metavar="FILE", help="With --store: a file with settings")]
_User = Annotated[
    str | None,
    typer.Option("--as", metavar="USER", help="On a store: who makes the change; default: the user of the system"),
]
_SHARED: Shared = {
    "profile": (_Profile, None),
    "server": (_Server, None),
    "as_json": (JsonOption, False),
    "output": (_Output, "table"),
}
_SHARED_BY_TARGETS: Shared = {
    "profile": (_Profile, None),
    "server": (_Server, None),
    "store": (_Store, None),
    "config": (_Config, None),
    "user": (_User, None),
    "as_json": (JsonOption, False),
    "output": (_AnyOutput, "table"),
}

_SHARED_BY_STORES: Shared = {
    "user": (UserOption, None),
    "store": (StoreOption, None),
    "config": (ConfigOption, None),
    "server": (
        Annotated[str | None, typer.Option("--server", metavar="URL", help="Act on this server, not on the store")],
        None,
    ),
    "profile": (
        Annotated[str | None, typer.Option("--profile", metavar="NAME", help="Act on the server of this profile")],
        None,
    ),
    "as_json": (JsonOption, False),
}

Register = Callable[[Callable[..., None]], Callable[..., None]]


def server_command(app: typer.Typer, name: str) -> Register:
    """Register a command whose first parameter is what the shared flags say."""

    def flags_of(*, profile: str | None, server: str | None, as_json: bool, output: str) -> ServerFlags:
        if output not in _OUTPUTS:
            raise BadRequest(f"--output {output!r}: expected {' or '.join(_OUTPUTS)}")
        return ServerFlags(profile, server, as_json or output == "json")

    return _registered(app, name, _SHARED, flags_of)


def target_command(app: typer.Typer, name: str) -> Register:
    """Register a command that acts on a server or on a store; its first parameter is what the shared flags say."""

    def flags_of(*, as_json: bool, output: str, **target: Any) -> TargetFlags:  # noqa: ANN401 - the fields of the flags
        found = next((one for one in _FORMATS if one == ("json" if as_json else output)), None)
        if found is None:
            raise BadRequest(f"--output {output!r}: expected {', '.join(_FORMATS)}")
        if target["store"] and (target["server"] or target["profile"]):
            raise BadRequest("--store excludes --server and --profile: choose one")
        return TargetFlags(**target, output=found)

    return _registered(app, name, _SHARED_BY_TARGETS, flags_of)


def store_command(app: typer.Typer, name: str) -> Register:
    """Register a command that acts on the store of the settings, or on the server that a flag names."""
    return _registered(app, name, _SHARED_BY_STORES, StoreOrServerFlags)


def _registered(app: typer.Typer, name: str, shared: Shared, flags_of: Callable[..., object]) -> Register:
    def register(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**given: object) -> None:
            flags = flags_of(**{key: given.pop(key) for key in shared})
            command(flags, **given)

        own = list(inspect.signature(command).parameters.values())[1:]
        added = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in shared.items()
        ]
        parameters = [*own, *added]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # Typer reads it.
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name)(run)
        return command  # So that a second name can be registered for it.

    return register
