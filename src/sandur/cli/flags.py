"""The flags that many commands share."""

import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Concatenate, NamedTuple, ParamSpec

import typer

from sandur.errors import BadRequest

P = ParamSpec("P")

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for machines")]
_OUTPUTS = ("table", "json")


class ServerFlags(NamedTuple):
    """The flags of a command that acts on a server; None is what the environment or the current profile says."""

    profile: str | None = None
    server: str | None = None
    as_json: bool = False


_Profile = Annotated[
    str | None,
    typer.Option("--profile", metavar="NAME", help="The profile; default: SANDUR_PROFILE, or the current one"),
]
_Server = Annotated[str | None, typer.Option("--server", metavar="URL", help="Another server than that of the profile")]
_Output = Annotated[str, typer.Option("--output", "-o", metavar="FORMAT", help="table or json")]
_SHARED = {
    "profile": (_Profile, None),
    "server": (_Server, None),
    "as_json": (JsonOption, False),
    "output": (_Output, "table"),
}


def server_command(
    app: typer.Typer, name: str
) -> Callable[[Callable[Concatenate[ServerFlags, P], None]], Callable[..., None]]:
    """Register a command whose first parameter is what the shared flags say."""

    def register(command: Callable[Concatenate[ServerFlags, P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(*, profile: str | None, server: str | None, as_json: bool, output: str, **given: object) -> None:
            if output not in _OUTPUTS:
                raise BadRequest(f"--output {output!r}: expected {' or '.join(_OUTPUTS)}")
            flags = ServerFlags(profile, server, as_json or output == "json")
            command(flags, **given)  # type: ignore[call-arg, arg-type] # Typer calls it with the parameters of the signature.

        own = list(inspect.signature(command).parameters.values())[1:]
        shared = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)
            for name, (kind, default) in _SHARED.items()
        ]
        parameters = [*own, *shared]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined] # Typer reads it.
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        app.command(name)(run)
        return run

    return register
