"""Generate docs/system-tables.md from the shapes of the published datasets and the texts below them.

`python -m checks.system_tables` writes the page; a test fails if the page is not current.
"""

import ast
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from sandur.pipeline import tables
from sandur.pipeline.tables import SHAPES, WITHOUT_TABLE

PAGE: Final = Path(__file__).parent.parent / "docs" / "system-tables.md"
_INTRODUCTION: Final = """# System tables

This page is generated from `src/sandur/pipeline/tables.py` by `python -m checks.system_tables`.

The jobs of the [pipeline](pipeline.md) publish what they know about a catalog as Iceberg tables in the namespace
`system` of the default catalog. Every engine reads them:

```sql
SELECT name, count(*) AS commits FROM sandur.system.commits GROUP BY name ORDER BY commits DESC
```

A column keeps its id in all releases. New columns are added at the end. Times are in UTC. A column whose name ends in
`_json` contains JSON text.
"""


def render_page() -> str:
    return "\n".join([_INTRODUCTION, *_sections()]) + "\n"


def _sections() -> Iterator[str]:
    texts = _texts()
    for name, shape in sorted(SHAPES.items()):
        if name in WITHOUT_TABLE:
            continue
        yield f"## `system.{name}`\n\n{texts[name]}\nIts key is {', '.join(f'`{one}`' for one in shape.key)}.\n"
        yield "| column | type | null |\n|---|---|---|"
        for column in shape.columns:
            yield f"| `{column.name}` | {column.kind} | {'no' if column.is_required else 'yes'} |"
        yield ""


def _texts() -> Mapping[str, str]:
    """The text below each declaration, by the name of the dataset. Raises ValueError for a dataset without one."""
    body = ast.parse(inspect.getsource(tables)).body
    found: dict[str, str] = {}
    for declared, text in zip(body, [*body[1:], None], strict=True):
        match declared, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(description))):
                shape = getattr(tables, name, None)
                if isinstance(shape, tables.Shape):
                    found[shape.name] = inspect.cleandoc(description)
    if missing := SHAPES.keys() - found.keys() - WITHOUT_TABLE:
        raise ValueError(f"datasets without a description: {sorted(missing)}; add a string below the declaration")
    return found


def main() -> None:
    PAGE.write_text(render_page(), encoding="utf-8")


if __name__ == "__main__":
    main()
