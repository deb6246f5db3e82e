"""Generate docs/settings.md from the settings class, whose fields carry their descriptions.

`python -m checks.settings_reference` writes the page; a test fails if the page is not current.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from sandur import settings
from sandur.setting_sources import environment_variable
from sandur.settings import OidcSettings, Settings

PAGE: Final = Path(__file__).parent.parent / "docs" / "settings.md"
_INTRODUCTION: Final = """# Settings

This page is generated from `src/sandur/settings.py` by `python -m checks.settings_reference`.

Set a value in a TOML file (`sandur serve --config sandur.toml`), in the environment, or with a flag of the command.
A flag overrides the environment, and the environment overrides the file. An unknown key is an error.
`sandur settings` prints every key with its current value.

```toml
store = "s3://bucket/prefix"
workers = 4

[s3]
region = "eu-central-1"
```

Durations are ISO 8601: `PT10M` is ten minutes, `P1DT12H` is a day and a half.
"""


def render_page() -> str:
    """The whole page."""
    return "\n".join([_INTRODUCTION, *_sections()])


def _sections() -> Iterator[str]:
    sections = {field.name: field.type for field in msgspec.structs.fields(Settings) if _is_section(field.type)}
    yield from _table(Settings, "")
    for name, section in sections.items():
        yield f"\n## `[{name}]`\n\n{inspect.getdoc(section)}\n"
        yield from _table(section, f"{name}.")
    yield f"\n## `[[oidc]]`\n\n{inspect.getdoc(OidcSettings)}\n"
    yield from _provider_table()


def _is_section(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _table(section: type[msgspec.Struct], prefix: str) -> Iterator[str]:
    descriptions = _descriptions(section.__name__)
    yield "| setting | default | environment | description |"
    yield "|---|---|---|---|"
    for field in msgspec.structs.fields(section):
        if not _is_section(field.type):
            key = prefix + field.name
            default = _render_default(field.default)
            yield f"| `{key}` | {default} | `{environment_variable(key)}` | {descriptions[field.name]} |"


def _provider_table() -> Iterator[str]:
    """The keys of one identity provider, which have no environment variables."""
    descriptions = _descriptions(OidcSettings.__name__)
    yield "| key | default | description |"
    yield "|---|---|---|"
    for field in msgspec.structs.fields(OidcSettings):
        default = "(required)" if field.required else _render_default(field.default)
        yield f"| `{field.name}` | {default} | {descriptions[field.name]} |"


def _render_default(value: object) -> str:
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case int() if value >= 1 << 20 and value % (1 << 20) == 0:
            return f"`{value}` ({value >> 20} MiB)"
        case "" | ():
            return ""
        case tuple():
            return ", ".join(f"`{item}`" for item in value)
        case _:
            return f"`{value}`"


def _descriptions(class_name: str) -> Mapping[str, str]:
    """The text below each field of a settings class. Raises ValueError for a field without one."""
    tree = ast.parse(inspect.getsource(settings))
    body = next(node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    found: dict[str, str] = {}
    for field, text in zip(body, [*body[1:], None], strict=True):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                found[name] = " ".join(description.split())  # A row of a table is one line.
            case ast.AnnAssign(target=ast.Name(id=name), annotation=ast.Name(id=kind)), _ if not kind.endswith(
                "Settings"
            ):
                raise ValueError(f"{class_name}.{name} has no description: add a string below the field")
    return found


def main() -> None:
    PAGE.write_text(render_page() + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
