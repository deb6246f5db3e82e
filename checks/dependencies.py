"""The packages that Sandur runs with: a report of their licences, and the list of components (SBOM) of a release.

`python -m checks.dependencies licences` and `python -m checks.dependencies sbom` print them. Both come from the
metadata of the installed packages, for the base install and all extras.
"""

import datetime as dt
import json
import os
import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from typing import Any, Final, NamedTuple

from packaging.requirements import Requirement

from sandur import __version__

PROJECT: Final = "sandur"
ALLOWED: Final = frozenset(
    {"Apache-2.0", "MIT", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MPL-2.0", "PSF-2.0", "Python-2.0", "Zlib", "0BSD"}
    | {"Unlicense", "CC0-1.0", "CNRI-Python", "MIT-0"}
)
"""Licences that a dependency may have; in an expression, each part must be one of them."""

_BY_CLASSIFIER: Final = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD-3-Clause",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_BY_TEXT: Final = (
    (re.compile(r"apache", re.IGNORECASE), "Apache-2.0"),
    (re.compile(r"\bMIT\b"), "MIT"),
    (re.compile(r"3-Clause BSD|BSD-3-Clause|BSD 3-Clause|New BSD", re.IGNORECASE), "BSD-3-Clause"),
    (re.compile(r"\bBSD\b"), "BSD-3-Clause"),
    (re.compile(r"MPL"), "MPL-2.0"),
)
_NAMESPACE: Final = uuid.UUID("6d1d8d6c-5a65-5a0e-9d4c-2f6f1f7d9a31")


class Package(NamedTuple):
    """A package, its licence as an SPDX expression (empty if unknown), and the packages that it needs here."""

    name: str
    version: str
    licence: str
    page: str
    needs: Sequence[str]

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{self.version}"


def packages() -> Sequence[Package]:
    """Sandur with all extras, and everything that it needs on this platform; Sandur first, then by name."""
    found: dict[str, Package] = {}
    own = distribution(PROJECT)
    pending = [(PROJECT, frozenset(own.metadata.get_all("Provides-Extra") or ()))]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        name, extras = pending.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue  # An extra that is not installed here.
        needs = dict(_needs(installed, extras))
        pending += needs.items()
        earlier = found[name].needs if name in found else ()
        found[name] = _package(name, installed, sorted({*earlier, *needs}))
    return [found.pop(PROJECT), *(found[name] for name in sorted(found))]


def _needs(installed: Distribution, extras: frozenset[str]) -> Iterator[tuple[str, frozenset[str]]]:
    for line in installed.requires or ():
        wanted = Requirement(line)
        if wanted.marker is None or any(wanted.marker.evaluate({"extra": extra}) for extra in (*extras, "")):
            yield _plain(wanted.name), frozenset(wanted.extras)


def _package(name: str, installed: Distribution, needs: Sequence[str]) -> Package:
    metadata = installed.metadata
    pages = dict(line.split(", ", 1) for line in metadata.get_all("Project-URL") or () if ", " in line)
    page = _field(installed, "Home-page") or pages.get("Homepage") or next(iter(pages.values()), "")
    return Package(name, installed.version, licence_of(installed), page, needs)


def licence_of(installed: Distribution) -> str:
    """The licence in the metadata of a package: its expression, its classifiers, or the first line of its text."""
    if expression := _field(installed, "License-Expression"):
        return expression
    classifiers = [line.rpartition(" :: ")[2] for line in installed.metadata.get_all("Classifier") or ()]
    if named := sorted({_BY_CLASSIFIER[one] for one in classifiers if one in _BY_CLASSIFIER}):
        return " OR ".join(named)
    first = _field(installed, "License").partition("\n")[0]
    return next((licence for pattern, licence in _BY_TEXT if pattern.search(first)), "")


def _field(installed: Distribution, name: str) -> str:
    return str((installed.metadata.get_all(name) or [""])[0])


def refused(licence: str) -> bool:
    """Whether a licence, or a part of an expression that must hold, is not allowed."""
    choices = [re.findall(r"[A-Za-z0-9.+-]+", part) for part in licence.split(" OR ")]
    return not any(choice and {word for word in choice if word != "AND"} <= ALLOWED for choice in choices)


def licence_report() -> str:
    lines = ["# Licences of dependencies", "", "| package | version | licence | page |", "|---|---|---|---|"]
    lines += [f"| {one.name} | {one.version} | {one.licence or 'unknown'} | {one.page} |" for one in packages()[1:]]
    return "\n".join(lines) + "\n"


def sbom(built: int, version: str) -> dict[str, Any]:
    """The components of a version in CycloneDX 1.6. `built` is the time of its commit in seconds."""
    installed, *others = packages()
    own = installed._replace(version=version)  # The installed version may be that of an earlier commit.
    known = {one.name: one.purl for one in (own, *others)}
    serial = uuid.uuid5(_NAMESPACE, " ".join(known.values()))
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{serial}",
        "version": 1,
        "metadata": {
            "timestamp": dt.datetime.fromtimestamp(built, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": _component(own, "application"),
        },
        "components": [_component(one, "library") for one in others],
        "dependencies": [
            {"ref": one.purl, "dependsOn": [known[name] for name in one.needs if name in known]}
            for one in (own, *others)
        ],
    }


def _component(one: Package, kind: str) -> Mapping[str, Any]:
    licences = {"licenses": [{"expression": one.licence}]} if one.licence else {}
    return {"type": kind, "bom-ref": one.purl, "name": one.name, "version": one.version, "purl": one.purl, **licences}


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    match sys.argv[1:]:
        case ["licences"]:
            print(licence_report(), end="")
        case ["sbom"]:
            print(json.dumps(sbom(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), __version__), indent=2))
        case _:
            print(__doc__)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
