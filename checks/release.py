"""Make a release: `make release VERSION=1.2.3` writes everything that is published to `dist/`.

It sets the version, dates the changelog, commits and tags, and then builds from that commit: the wheel, the Helm chart,
the versions of all dependencies, the container image, the licences of dependencies, the list of components (SBOM) and
checksums. For a version whose tag exists, it builds again: the same commit gives the same files, byte for byte; an
image also needs the same base.

An image needs buildah. Without it the rest is built, and the output says what is missing. The base and the extras of
the image can be chosen: --image-options "--build-arg BASE=python:3.12 --build-arg EXTRAS=grpc".
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from checks.dependencies import licence_report, packages, sbom

ROOT: Final = Path(__file__).parent.parent
_VERSION: Final = re.compile(r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?")
_IN_FILES: Final[Mapping[str, str]] = {
    "pyproject.toml": r'(?m)^version = "[^"]+"$',
    "src/sandur/__init__.py": r'(?m)^__version__ = "[^"]+"$',
}
_NAME_IT: Final = ("deploy/compose/compose.yaml", "deploy/Containerfile", "docs/deployment.md")
"""Files with names of the image or the wheel, such as `sandur:1.2.3`."""
_NAMED: Final = re.compile(rf"\b(sandur(?:-spark)?[:-]){_VERSION.pattern}")
FAILED: Final = "not built, this failed"
_UNRELEASED: Final = re.compile(r"(?m)^## \S+ \(unreleased\)$")


class NotReady(Exception):
    """The tree cannot be released as it is."""


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(prog="python -m checks.release", description=__doc__)
    parser.add_argument("version", help="such as 1.2.3")
    parser.add_argument("--date", required=True, help="the day of the release, such as 2026-01-31")
    parser.add_argument("--to", type=Path, default=root / "dist", help="the folder for the results")
    parser.add_argument("--image-options", type=shlex.split, default=[], help="further options for buildah")
    options = parser.parse_args(arguments)
    try:
        prepare(root, options.version, options.date)
        made = build(root, options.version, options.to, options.image_options)
    except NotReady as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    print("\n".join(made))
    if any(FAILED in line for line in made):
        return 1
    print(f"Publish with: git push --follow-tags, and the files in {options.to}")
    return 0


def prepare(root: Path, version: str, date: str) -> None:
    """Commit and tag the version; nothing if the current commit has that tag. Raises NotReady."""
    if not _VERSION.fullmatch(version):
        raise NotReady(f"version {version!r}: expected a version such as 1.2.3 or 1.2.3rc1")
    if changed := _git(root, "status", "--porcelain"):
        raise NotReady(f"the tree has changes; commit them first:\n{changed}")
    tag = f"v{version}"
    if tag in _git(root, "tag", "--list", tag).split():
        if _git(root, "rev-parse", f"{tag}^{{commit}}") != _git(root, "rev-parse", "HEAD"):
            raise NotReady(f"{tag} is another commit; check it out to build it again")
        return
    write_version(root, version, date)
    _git(root, "commit", "--all", "--message", f"release: {version}")
    _git(root, "tag", "--annotate", tag, "--message", f"Sandur {version}")


def write_version(root: Path, version: str, date: str) -> None:
    """Set the version in every file that has it, and date the changelog. Raises NotReady before it writes anything."""
    changelog = root / "CHANGELOG.md"
    written = {changelog: _UNRELEASED.sub(f"## {version} ({date})", changelog.read_text(encoding="utf-8"), count=1)}
    if written[changelog] == changelog.read_text(encoding="utf-8"):
        raise NotReady("CHANGELOG.md has no section (unreleased); add one with what changed for users")
    for name, pattern in _IN_FILES.items():
        text = (root / name).read_text(encoding="utf-8")
        line = re.search(pattern, text)
        if line is None:
            raise NotReady(f"{name}: no line with the version")
        written[root / name] = text.replace(line[0], re.sub(r'"[^"]+"', f'"{version}"', line[0]), 1)
    for name in _NAME_IT:
        text = (root / name).read_text(encoding="utf-8")
        written[root / name], found = _NAMED.subn(rf"\g<1>{version}", text)
        if not found:
            raise NotReady(f"{name}: no name of the image or the wheel with the version")
    for chart in root.glob("deploy/**/Chart.yaml"):
        text = chart.read_text(encoding="utf-8")
        written[chart] = re.sub(r"(?m)^(version|appVersion): .*$", rf'\1: "{version}"', text)
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")


def build(root: Path, version: str, to: Path, image_options: Sequence[str]) -> Sequence[str]:
    """Build everything from the current commit; a line for each result, or for what is missing."""
    to.mkdir(parents=True, exist_ok=True)
    epoch = _git(root, "log", "-1", "--format=%ct")
    wheel = build_wheel(root, to, epoch)
    chart = build_chart(root / "deploy" / "chart", to / f"sandur-{version}.tgz", int(epoch))
    constraints = write_constraints(to / f"sandur-{version}-constraints.txt")
    image = build_image(wheel, f"sandur:{version}", epoch, [*pinned(constraints), *image_options])
    lines = [f"wheel: {wheel.name}", f"chart: {chart.name}", f"dependencies: {constraints.name}", image]
    (to / f"sandur-{version}-licences.md").write_text(licence_report(), encoding="utf-8")
    components = json.dumps(sbom(int(epoch), version), indent=2) + "\n"
    (to / f"sandur-{version}.cdx.json").write_text(components, encoding="utf-8")
    lines += [f"licences: sandur-{version}-licences.md", f"SBOM: sandur-{version}.cdx.json"]
    files = sorted(path for path in to.glob(f"*{version}*") if path.is_file())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (to / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return [*lines, "checksums: SHA256SUMS"]


def build_wheel(root: Path, to: Path, epoch: str) -> Path:
    """The wheel of a tree. Times of files do not matter: all entries have the time `epoch`."""
    before = set(to.glob("*.whl"))
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(to)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(command, cwd=root, env=environment, check=True, stdout=subprocess.DEVNULL)  # noqa: S603 - our own build
    made = sorted(set(to.glob("*.whl")) - before) or sorted(before, key=lambda path: path.stat().st_mtime_ns)
    return made[-1]


def write_constraints(to: Path) -> Path:
    """The versions of all dependencies in this environment, in the form that pip reads."""
    to.write_text("".join(f"{one.name}=={one.version}\n" for one in packages()[1:]), encoding="utf-8")
    return to


def pinned(constraints: Path) -> Sequence[str]:
    """The options with which an image gets these versions of its packages."""
    volume = f"{constraints.parent.resolve()}:/dist:ro"
    return "--volume", volume, "--build-arg", f"PIP_CONSTRAINT=/dist/{constraints.name}"


def build_image(wheel: Path, name: str, epoch: str, options: Sequence[str]) -> str:
    """Build the image of a wheel, and write it beside the wheel; returns the line for the output.

    The format is that of Docker, because images in OCI's format have no health check.
    """
    if (buildah := shutil.which("buildah")) is None:
        return "image: not built, buildah is not installed"
    archive = wheel.with_name(f"{name.rpartition('/')[2].replace(':', '-')}.image.tar")
    archive.unlink(missing_ok=True)
    recipe = ROOT / "deploy" / "Containerfile"
    built = [buildah, "bud", "--format", "docker", "--timestamp", epoch, "--tag", name, "--file", str(recipe)]
    for command in (
        [*built, "--build-arg", f"WHEEL={wheel.name}", *options, str(wheel.parent)],
        [buildah, "push", name, f"docker-archive:{archive}:{name}"],
    ):
        if subprocess.run(command, check=False).returncode:  # noqa: S603 - our own build
            return f"image: {FAILED}: {shlex.join(command)}"
    drop_build_host(archive)
    return f"image: {archive.name}"


def drop_build_host(archive: Path) -> None:
    """Write the archive of an image again without the id and the host name of the container that built it."""
    written = archive.with_suffix(".unfinished")
    with tarfile.open(archive) as packed, tarfile.open(written, "w") as stable:

        def add(name: str, content: IO[bytes], size: int) -> None:
            entry = tarfile.TarInfo(name)
            entry.size = size
            stable.addfile(entry, content)

        (manifest,) = json.loads(_member(packed, "manifest.json").read())
        config = json.loads(_member(packed, manifest["Config"]).read())
        config.pop("container", None)
        for part in ("config", "container_config"):
            config.get(part, {}).pop("Hostname", None)
        text = json.dumps(config).encode()
        manifest["Config"] = f"{hashlib.sha256(text).hexdigest()}.json"
        for name, data in ((manifest["Config"], text), ("manifest.json", json.dumps([manifest]).encode())):
            add(name, io.BytesIO(data), len(data))
        for layer in dict.fromkeys(manifest["Layers"]):
            add(layer, _member(packed, layer), packed.getmember(layer).size)
    written.replace(archive)


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    found = archive.extractfile(name)
    if found is None:
        raise NotReady(f"the archive of the image: {name} is not a file")
    return found


def build_chart(chart: Path, to: Path, epoch: int) -> Path:
    """The archive of a chart, as `helm package` makes it, but with `epoch` as the time of all files."""
    with (
        gzip.GzipFile(filename="", fileobj=(written := io.BytesIO()), mode="wb", mtime=epoch) as zipped,
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"sandur/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mtime = path.stat().st_size, epoch
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    to.write_bytes(written.getvalue())
    return to


def _git(root: Path, *arguments: str) -> str:
    command = [shutil.which("git") or "git", "-C", str(root), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own repository
    if done.returncode:
        raise NotReady(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
