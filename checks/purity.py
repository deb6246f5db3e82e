"""Refuse `async def` and I/O in pure packages, and modules without a docstring."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "sandur"
PURE_PACKAGES = ("avro", "catalog", "delta", "iceberg")
IMPURE_CALLS = ("open", "input", "print", "breakpoint", "exec", "eval")


def impurities(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        match node:
            case ast.AsyncFunctionDef(name=name):
                yield node.lineno, f"async def {name}: pure code must not wait"
            case ast.Call(func=ast.Name(id=name)) if name in IMPURE_CALLS:
                yield node.lineno, f"{name}(): pure code must not do I/O"


def problems(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.relative_to(SOURCE.parent.parent)
    if ast.get_docstring(tree) is None:
        yield f"{name}:1: the module has no docstring"
    if path.relative_to(SOURCE).parts[0] in PURE_PACKAGES:
        for line, problem in impurities(tree):
            yield f"{name}:{line}: {problem}"


def main() -> int:
    found = [problem for path in sorted(SOURCE.rglob("*.py")) for problem in problems(path)]
    print("\n".join(found) if found else "Purity: kept")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
