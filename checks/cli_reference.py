"""Writes docs/cli.md and a man page per command from the commands themselves: `python -m checks.cli_reference`.

A test compares the files with the commands.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from sandur.cli.main import app

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "cli.md"
MAN: Final = ROOT / "docs" / "man"

_HEAD: Final = """\
# Command line

The command `sandur` browses and changes catalogs, on a server or directly on a store.

```
sandur login --server https://catalog.example.org
sandur ls main.sales -l
sandur show main.sales.orders
sandur history main.sales.orders
sandur diff main.sales.orders 41 43
sandur create table main.sales.returns --columns "id BIGINT NOT NULL, at TIMESTAMP" --partition-by 'day(at)'
sandur rollback main.sales.orders --to 41
sandur export main --file main.json && sandur apply main.json --server https://test.example.org --dry-run
```

This page and the man pages in `docs/man` are generated. Do not edit them: run `python -m checks.cli_reference`.

## Where a command acts

| | |
|---|---|
| `--server URL`, `--profile NAME` | on a server, as the person or program that logged in |
| `--store URL` | on the store itself, without a server and without grants, for its administrators |

A flag goes before the environment (`SANDUR_SERVER`, `SANDUR_PROFILE`, `SANDUR_STORE`), and the environment before the
current profile. Without any of them, a command acts on the store of the settings. Both targets run the same
operations and print the same. A change on a store has the source `admin` in the history, with the user of the
operating system, or the one of `--as`.

## Names

A name is a catalog, `catalog.namespace`, or `catalog.namespace.name`; namespaces may have several levels. A part that
contains a dot is put in backticks: ``main.`my.level`.orders``. `sandur --install-completion` makes the shell complete
names.

## Output

On a terminal, results are tables for people. Elsewhere they are lines with tabs, in which nothing is cut and control
characters are escaped. `-o json`, `-o jsonl` and `-o csv` choose another form; `--json` is `-o json`. Results go to
standard output; messages, questions and progress go to standard error. `NO_COLOR` switches colors off. A command that
deletes or overwrites asks first. Without a terminal it never asks: pass `--yes`.

Every change has an idempotency key. If its answer is lost, it is sent again with the same key, so it happens at most
once.

## Versions

`sandur history` counts the versions of a table: an Iceberg table has one per metadata file, a Delta table one per
commit. `diff`, `tag`, `branch` and `rollback` take these numbers. `diff` compares columns by their field id, so a
renamed column is not a removed one and a new one.

## Definitions

`sandur export` writes the definitions of a catalog, of a namespace or of everything, as JSON: properties, schemas,
partitions, queries of views, volumes, functions, models. It writes no data, no grants and no secrets. `sandur apply`
compares such a file with a target, prints the plan, and asks. It creates what is missing, sets properties, replaces
queries of views, and adds optional columns at the end of a schema. It never drops anything. Other differences are
reported, and the exit code is 5. A second run changes nothing.
"""
_CODES: Final = (
    (0, "done"),
    (1, "failed, or not confirmed"),
    (2, "wrong usage"),
    (3, "not found"),
    (4, "log in, or not allowed"),
    (5, "conflict: it exists, is not empty, or has changed"),
    (6, "unknown outcome of a change: look before you repeat it"),
    (7, "not available: repeat it later"),
    (130, "interrupted"),
)
_EVERYWHERE: Final = frozenset({"--help"})
_BACKTICKS: Final = re.compile(r"`([^`]+)`")


class Parameter(NamedTuple):
    """An argument or an option: how it is written, what it means, and its default."""

    text: str
    help: str
    default: str = ""


class Command(NamedTuple):
    """A command with its full name, such as `sandur view list`."""

    name: str
    summary: str
    details: str
    arguments: tuple[Parameter, ...]
    options: tuple[Parameter, ...]

    @property
    def usage(self) -> str:
        options = " [OPTIONS]" if self.options else ""
        return f"{self.name}{options}{''.join(f' {one.text}' for one in self.arguments)}"


def commands() -> list[Command]:
    """All commands, sorted by name."""
    return sorted(_commands("sandur", typer.main.get_command(app)), key=lambda one: one.name)


def _commands(name: str, found: Any) -> Iterator[Command]:  # noqa: ANN401 - Typer's commands have no public type
    inner: Mapping[str, Any] = getattr(found, "commands", {})
    for word, child in inner.items():
        yield from _commands(f"{name} {word}", child)
    if inner:
        return
    summary, _, details = (found.help or "").partition("\n\n")
    parameters = [one for one in found.params if not getattr(one, "hidden", False)]
    arguments = [_argument(one) for one in parameters if one.param_type_name == "argument"]
    options = [_option(one) for one in parameters if one.param_type_name == "option"]
    shown = [one for one in options if not set(one.text.split(", ")) & _EVERYWHERE]
    yield Command(name, _line(summary), _line(details), tuple(arguments), tuple(shown))


def _argument(parameter: Any) -> Parameter:  # noqa: ANN401 - as above
    name = (parameter.metavar or parameter.name.upper()).strip("[]")
    text = name if parameter.required else f"[{name}]"
    return Parameter(text, _line(parameter.help or ""))


def _option(parameter: Any) -> Parameter:  # noqa: ANN401 - as above
    names = ", ".join((*parameter.opts, *parameter.secondary_opts))
    metavar = "" if parameter.is_flag else f" {parameter.metavar or parameter.name.upper()}"
    default = parameter.default
    is_shown = not parameter.is_flag and isinstance(default, str | int) and default != ""
    return Parameter(f"{names}{metavar}", _line(parameter.help or ""), str(default) if is_shown else "")


def _line(text: str) -> str:
    return " ".join(text.split())


def render_page() -> str:
    """The page of the command line: what people need first, then every command."""
    lines = [_HEAD.rstrip(), "", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in _CODES]
    lines += ["", "## Commands", ""]
    for command in commands():
        lines += [f"### {command.name.removeprefix('sandur ')}", "", command.summary, *_paragraph(command.details)]
        lines += ["", "```", command.usage, "```", ""]
        rows = [*command.arguments, *command.options]
        if any(row.help or row.default for row in rows):
            lines += ["| | |", "|---|---|"]
            lines += [f"| `{_cell(row.text)}` | {_cell(_with_default(row))} |" for row in rows]
            lines.append("")
    return "\n".join(lines).rstrip()


def _paragraph(text: str) -> list[str]:
    return ["", text] if text else []


def _with_default(parameter: Parameter) -> str:
    return f"{parameter.help}; default: `{parameter.default}`" if parameter.default else parameter.help


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def man_pages() -> Mapping[str, str]:
    """The man page of each command, by the name of its file."""
    return {f"{command.name.replace(' ', '-')}.1": _man_page(command) for command in commands()}


def _man_page(command: Command) -> str:
    name = command.name.replace(" ", "-")
    lines = [f'.TH "{name.upper()}" "1" "" "Sandur" "Sandur"', ".SH NAME", f"{name} \\- {_roff(command.summary)}"]
    lines += [".SH SYNOPSIS", f".B {_roff(command.usage)}"]
    if command.details:
        lines += [".SH DESCRIPTION", _roff(command.details)]
    for title, rows in (("ARGUMENTS", command.arguments), ("OPTIONS", command.options)):
        if rows:
            lines.append(f".SH {title}")
        for row in rows:
            lines += [".TP", f".B {_roff(row.text)}", _roff(_with_default(row)) or "\\&"]
    lines.append(".SH EXIT STATUS")
    for code, meaning in _CODES:
        lines += [".TP", f".B {code}", _roff(meaning)]
    return "\n".join(lines) + "\n"


def _roff(text: str) -> str:
    """The text for roff: a line must not begin with a control character."""
    plain = _BACKTICKS.sub(r"\1", text).replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{plain}" if plain.startswith((".", "'")) else plain


def main() -> None:
    PAGE.write_text(render_page() + "\n", encoding="utf-8")
    MAN.mkdir(exist_ok=True)
    pages = man_pages()
    for name, text in pages.items():
        (MAN / name).write_text(text, encoding="utf-8")
    for stale in {one.name for one in MAN.glob("*.1")} - pages.keys():
        (MAN / stale).unlink()


if __name__ == "__main__":
    main()
