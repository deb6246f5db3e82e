"""Random tables and filters, from a seed, for comparisons of planners."""

import random  # noqa: TID251 - seeded
from collections import defaultdict
from pathlib import Path
from typing import Any

from sandur.iceberg.expressions.values import value_to_json
from tests.planning.filters import SPECS, TRANSFORMS, kind_of, made, of
from tests.planning.tables import COLUMNS, MadeFile, MadeManifest, MadeTable, Row, Spec, is_nan

_DAY = 86_400_000_000
_DELETED_SHARE = 0.3
UNPARTITIONED = tuple(spec for spec in SPECS if all(text == "void" for _, text, _ in spec.fields))


class Made:
    """A random table, and filters for it."""

    def __init__(self, folder: Path, seed: int, *, version: int, with_equality: bool) -> None:
        self._chance = random.Random(seed)
        self.table = MadeTable(folder, SPECS, format_version=version)
        self._with_equality = with_equality and version > 1
        self.rows: dict[str, list[Row]] = {}
        self.specs: dict[str, Spec] = {}
        self._data: dict[str, MadeFile] = {}
        self._all_deletes: list[MadeFile] = []
        manifests: list[MadeManifest] = []
        for number in range(self._chance.randrange(1, 5)):
            # Unpartitioned specs more often: their deletes apply to all files.
            spec = self._chance.choice((*SPECS, *UNPARTITIONED, *UNPARTITIONED))
            manifests += self._manifests(spec, number)
        self.table.add_snapshot(manifests)
        self.path = self.table.write()

    def _manifests(self, spec: Spec, number: int) -> list[MadeManifest]:
        chance = self._chance
        groups: dict[str, list[Row]] = defaultdict(list)
        for _ in range(chance.randrange(1, 15)):
            row = self._row()
            groups[repr(spec.partition(row))].append(row)
        sequence = chance.randrange(1, 5)
        files = [
            MadeFile(f"file:///t/{number}-{place}.parquet", spec.partition(rows[0]), rows, sequence_number=sequence)
            for place, rows in enumerate(groups.values())
        ]
        self.rows |= {file.path: list(file.rows) for file in files}
        self._data |= {file.path: file for file in files}
        found = [MadeManifest(spec, files, sequence_number=sequence)]
        if self.table.format_version > 1 and chance.random() < 0.7:
            deletes = self._deletes(files, number)
            self._all_deletes += deletes
            found.append(MadeManifest(spec, deletes, sequence_number=5, content=1))
        self.specs |= {file.path: spec for manifest in found for file in manifest.files}
        return found

    def partition_of(self, path: str) -> tuple[Any, ...]:
        return self._data[path].partition

    def named_by(self, delete_path: str) -> str | None:
        """The data file that a delete file names."""
        return next(delete.referenced_data_file for delete in self._all_deletes if delete.path == delete_path)

    def deletes_of(self, path: str) -> set[str]:
        """The delete files of a data file, by an independent computation."""
        found = [delete for delete in self._all_deletes if self._applies(delete, self._data[path])]
        has_vector = any(delete.file_format == "PUFFIN" for delete in found)
        return {
            delete.path for delete in found if not has_vector or delete.content == 2 or delete.file_format == "PUFFIN"
        }

    def _applies(self, delete: MadeFile, file: MadeFile) -> bool:
        age = (delete.sequence_number or 0) - (file.sequence_number or 0)
        spec = self.specs[delete.path]
        is_there = spec == self.specs[file.path] and repr(delete.partition) == repr(file.partition)
        if delete.content == 2:
            return age > 0 and (is_there or spec in UNPARTITIONED)
        return age >= 0 and (
            is_there if delete.referenced_data_file is None else delete.referenced_data_file == file.path
        )

    def _deletes(self, files: list[MadeFile], number: int) -> list[MadeFile]:
        chance = self._chance
        found = []
        for place, file in enumerate(files):
            if chance.random() > _DELETED_SHARE:
                continue
            kinds = ["partition", "path"] + (["equality"] if self._with_equality else [])
            kind = chance.choice(kinds)
            found.append(
                MadeFile(
                    f"file:///t/delete-{number}-{place}.parquet",
                    file.partition,
                    record_count=1,
                    content=2 if kind == "equality" else 1,
                    sequence_number=chance.randrange(1, 6),
                    equality_ids=(1,) if kind == "equality" else None,
                    referenced_data_file=file.path if kind == "path" else None,
                    has_stats=False,
                )
            )
            if self.table.format_version > 2 and chance.random() < 0.5:
                found.append(self._vector(file, f"vector-{number}-{place}"))
        return found or [
            MadeFile(
                f"file:///t/delete-{number}.parquet",
                files[0].partition,
                record_count=1,
                content=1,
                sequence_number=1,
                has_stats=False,
            )
        ]

    def _vector(self, file: MadeFile, name: str) -> MadeFile:
        """A deletion vector, which is never older than its data file."""
        return MadeFile(
            f"file:///t/{name}.puffin",
            file.partition,
            record_count=1,
            content=1,
            sequence_number=5,
            file_format="PUFFIN",
            referenced_data_file=file.path,
            content_offset=4,
            content_size=40,
            has_stats=False,
        )

    def value(self, name: str) -> Any:  # noqa: PLR0911 - one line per column
        chance = self._chance
        match name:
            case "name":
                return "".join(chance.choice("abé") for _ in range(chance.randrange(0, 9)))
            case "ts":
                return chance.choice([chance.randrange(-2, 3) * _DAY, chance.randrange(-800 * _DAY, 800 * _DAY)])
            case "day":
                return chance.choice([chance.randrange(-2, 3), 364, 365, -365])
            case "x" | "f":
                return float("nan") if chance.random() < 0.2 else float(chance.randrange(-3, 4))
            case "flag":
                return chance.random() < 0.5
            case "amount":
                return chance.choice([chance.randrange(-3, 4), 49, 50, 100, -50])
            case "bin":
                return bytes(chance.choice([0, 0, 1, 200, 255]) for _ in range(chance.randrange(0, 4)))
            case _:
                return chance.randrange(-4, 5)

    def _row(self) -> Row:
        chance = self._chance
        return {
            name: self.value(name) if required or chance.random() > 0.2 else None
            for name, (_, _, required) in COLUMNS.items()
        }

    def filter(self, *, without: frozenset[str] = frozenset(), terms: bool = True, depth: int = 0) -> Any:
        """A random filter without some of the columns; with `terms` also on transforms of columns."""
        chance = self._chance
        if depth < 3 and chance.random() < 0.4:
            kind = chance.choice(["and", "or", "not"])
            if kind == "not":
                return {"type": "not", "child": self.filter(without=without, terms=terms, depth=depth + 1)}
            sides = {side: self.filter(without=without, terms=terms, depth=depth + 1) for side in ("left", "right")}
            return {"type": kind, **sides}
        name = chance.choice([name for name in COLUMNS if name not in without])
        transforms = TRANSFORMS.get(name, ()) if terms else ()
        return self._test(name, of(chance.choice(transforms), name) if transforms and chance.random() < 0.4 else name)

    def _test(self, name: str, term: Any) -> Any:
        chance, kind = self._chance, kind_of(term)
        operators = ["is-null", "not-null", "lt", "lt-eq", "gt", "gt-eq", "eq", "not-eq", "in", "not-in"]
        operators += ["starts-with", "not-starts-with"] if kind.name == "string" else []
        operators += ["is-nan", "not-nan"] if kind.name in {"double", "float"} else []
        operator = chance.choice(operators)
        if operator in {"is-null", "not-null", "is-nan", "not-nan"}:
            return {"type": operator, "term": term}
        values = [value_to_json(kind, made(term, self._literal(name))) for _ in range(chance.randrange(2, 5))]
        if operator in {"in", "not-in"}:
            return {"type": operator, "term": term, "values": values}
        return {"type": operator, "term": term, "value": values[0]}

    def _literal(self, name: str) -> Any:
        value = self.value(name)
        return 0.5 if is_nan(value) else value
