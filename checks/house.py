"""Measure the size and shape of a source tree; fail if the tree holds verbatim duplicates.

`python -m checks.house` prints one table. `--list` adds the places behind each figure, `--tree` measures another
checkout, `--no-trace` leaves out the traced requests.
"""

import argparse
import ast
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final, NamedTuple

REPOSITORY: Final = Path(__file__).parent.parent
DUPLICATE_LINES_MIN: Final = 6
COMPLEXITY_MAX: Final = 15
_GENERATED: Final = ("*_pb2.py", "*_pb2_grpc.py")
_STARTED_FROM_OUTSIDE: Final = frozenset({"sandur.cli.main"})
# A module that one of these imports is an entry point: a command, a job, or the handlers of an API.
_TABLES_OF_ENTRY_POINTS: Final = ("sandur.cli.main", "sandur.pipeline.jobs", "sandur.server.*.routes")


class Module(NamedTuple):
    """One source file."""

    name: str
    path: Path
    lines: Sequence[str]
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"


class Measure(NamedTuple):
    """One row of the table, and the places behind its figure."""

    what: str
    found: str
    target: str
    places: Sequence[str] = ()


def main() -> int:
    options = _options()
    modules = read_modules(options.tree / "src")
    copies = duplicates(modules)
    measures = [*_shape(modules), *([] if options.no_trace else _requests(options.tree)), *_code(modules, copies)]
    width = max(len(measure.what) for measure in measures)
    for measure in measures:
        print(f"{measure.what:<{width}}  {measure.found:>14}  (target {measure.target})")
        for place in measure.places if options.list else ():
            print(f"    {place}")
    if copies and not options.list:
        print("\n".join(["Verbatim duplicates:", *copies]))
    return 1 if copies else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m checks.house", description=__doc__)
    parser.add_argument("--tree", type=Path, default=REPOSITORY, help="the checkout to measure")
    parser.add_argument("--list", action="store_true", help="print the places behind each figure")
    parser.add_argument("--no-trace", action="store_true", help="do not run the traced commit and load")
    return parser.parse_args()


def read_modules(source: Path) -> Sequence[Module]:
    """Every module below the package `sandur` that people wrote, in the order of their paths."""
    found = []
    for path in sorted((source / "sandur").rglob("*.py")):
        if any(fnmatchcase(path.name, pattern) for pattern in _GENERATED):
            continue
        text = path.read_text(encoding="utf-8")
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if path.name == "__init__.py" else parts)
        found.append(Module(name, path, text.splitlines(), ast.parse(text)))
    return found


def _shape(modules: Sequence[Module]) -> Iterator[Measure]:
    lines = sum(len(module.lines) for module in modules)
    yield Measure("modules / lines in src", f"{len(modules)} / {lines:,}", "≤ 527 / ≤ 94,200")
    median = statistics.median(len(module.lines) for module in modules if not module.is_package)
    yield Measure("median file, lines", f"{median:.0f}", "130–200")
    single = with_one_importer(modules)
    yield Measure("modules with one importer", str(len(single)), "≤ 88", single)


def _requests(tree: Path) -> Iterator[Measure]:
    environment = {**os.environ, "PYTHONPATH": str((tree / "src").resolve())}
    command = [sys.executable, str(Path(__file__).parent / "paths.py")]
    traced = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - ours
    found = json.loads(traced.stdout)
    commit, load = found["commit"], found["load"]
    yield Measure("files a commit passes through", str(len(commit["files"])), "≤ 42", commit["files"])
    yield Measure("files a load passes through", str(len(load["files"])), "≤ 23", load["files"])
    yield Measure("frames from handler to store, swap", str(len(commit["swap"])), "≤ 8", commit["swap"])
    yield Measure("frames from handler to store, load", str(len(load["longest"])), "≤ 10", load["longest"])


def _code(modules: Sequence[Module], copies: Sequence[str]) -> Iterator[Measure]:
    loops, complex_functions = swap_loops(modules), too_complex(modules)
    yield Measure("retry loops around a swap", str(len(loops)), "≤ 7", loops)
    yield Measure(f"verbatim duplicates of {DUPLICATE_LINES_MIN} lines or more", str(len(copies)), "0", copies)
    yield Measure(
        f"functions with complexity over {COMPLEXITY_MAX}", str(len(complex_functions)), "0", complex_functions
    )


def with_one_importer(modules: Sequence[Module]) -> Sequence[str]:
    """Modules that exactly one other module imports; packages and entry points do not count."""
    by_module = _importers(modules)
    found = []
    for module in modules:
        importers = by_module[module.name]
        if len(importers) == 1 and not module.is_package and module.name not in _STARTED_FROM_OUTSIDE:
            importer = next(iter(importers))
            if not any(fnmatchcase(importer, table) for table in _TABLES_OF_ENTRY_POINTS):
                found.append(f"{module.name} <- {importer}")
    return found


def _importers(modules: Sequence[Module]) -> Mapping[str, set[str]]:
    """The modules that import each module, anywhere in the file."""
    names = {module.name for module in modules}
    found: dict[str, set[str]] = defaultdict(set)
    for module in modules:
        for imported in (name for node in ast.walk(module.tree) for name in _imported(node)):
            # `from package import name` imports a module if the package has a module of that name.
            target = imported if imported in names else imported.rpartition(".")[0]
            if target in names and target != module.name:
                found[target].add(module.name)
    return found


def _imported(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.ImportFrom(module=str(module), names=names):
            yield from (f"{module}.{alias.name}" for alias in names)
        case ast.Import(names=names):
            yield from (alias.name for alias in names)


def swap_loops(modules: Sequence[Module]) -> Sequence[str]:
    """Bounded loops that catch SwapLost in their body, or in a function of the same module that the body calls."""
    return [f"{module.name}:{line}" for module in modules for line in _swap_loops(module.tree)]


def _swap_loops(tree: ast.Module) -> Iterator[int]:
    functions: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name].append(node)

    def catches(node: ast.AST, seen: set[str]) -> bool:
        if any(_is_handler_of_lost_swaps(inner) for inner in ast.walk(node)):
            return True
        called = set(_called(node)) & set(functions) - seen
        seen |= called
        return any(catches(function, seen) for name in called for function in functions[name])

    for node in ast.walk(tree):
        if not isinstance(node, ast.For) or not ast.unparse(node.iter).startswith("range("):
            continue
        if any(catches(statement, set()) for statement in node.body):
            yield node.lineno


def _is_handler_of_lost_swaps(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler) and node.type is not None and "SwapLost" in ast.unparse(node.type)


def _called(node: ast.AST) -> Iterator[str]:
    for inner in ast.walk(node):
        match inner:
            case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(value=ast.Name(id="self"), attr=name)):
                yield name


def too_complex(modules: Sequence[Module]) -> Sequence[str]:
    """Functions above the limit, with their cyclomatic complexity; nested functions count for themselves."""
    return [
        f"{module.name}:{node.name} {complexity}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (complexity := 1 + sum(map(_branches, _own_nodes(node)))) > COMPLEXITY_MAX
    ]


def _own_nodes(function: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(function):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield child
            yield from _own_nodes(child)


def _branches(node: ast.AST) -> int:
    match node:
        case ast.If() | ast.IfExp() | ast.For() | ast.AsyncFor() | ast.While() | ast.ExceptHandler() | ast.Assert():
            return 1
        case ast.BoolOp(values=values):
            return len(values) - 1
        case ast.comprehension(ifs=ifs):
            return 1 + len(ifs)
        case ast.match_case(pattern=ast.MatchAs(pattern=None)):
            return 0
        case ast.match_case():
            return 1
    return 0


def duplicates(modules: Sequence[Module]) -> Sequence[str]:
    """Pairs of places with at least six equal lines of code; imports, docstrings, comments and blank lines aside."""
    codes = [_code_lines(module) for module in modules]
    places: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for number, code in enumerate(codes):
        for start in range(len(code) - DUPLICATE_LINES_MIN + 1):
            window = tuple(text for _, text in code[start : start + DUPLICATE_LINES_MIN])
            places[window].append((number, start))
    equal = {
        (*first, *second)
        for found in places.values()
        for position, first in enumerate(found)
        for second in found[position + 1 :]
        if first[0] != second[0] or second[1] >= first[1] + DUPLICATE_LINES_MIN
    }
    # A longer run matches at each of its lines: only its first line is a place.
    firsts = sorted(pair for pair in equal if (pair[0], pair[1] - 1, pair[2], pair[3] - 1) not in equal)
    return [
        f"{modules[one].name}:{codes[one][line][0]} = {modules[other].name}:{codes[other][other_line][0]}"
        for one, line, other, other_line in firsts
    ]


def _code_lines(module: Module) -> Sequence[tuple[int, str]]:
    skipped: set[int] = set()
    for node in ast.walk(module.tree):
        match node:
            case ast.Expr(value=ast.Constant(value=str())) | ast.Import() | ast.ImportFrom():
                skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    numbered = ((number, line.strip()) for number, line in enumerate(module.lines, 1) if number not in skipped)
    return [(number, text) for number, text in numbered if text and not text.startswith("#")]


if __name__ == "__main__":
    sys.exit(main())
