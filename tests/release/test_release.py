"""A release: one version everywhere, the same wheel for the same sources, licences and components of dependencies."""

import ast
import hashlib
import importlib.metadata
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml  # type: ignore[import-untyped] # No types are published with it.
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from checks import dependencies
from checks.release import ROOT, NotReady, build_chart, build_wheel, drop_build_host, main, prepare, write_version
from sandur import __version__

_FILES: Final = ("pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md")
_EPOCH: Final = "1700000000"


def _copy(to: Path) -> Path:
    """What a wheel is built from, and the changelog."""
    to.mkdir()
    for name in _FILES:
        shutil.copy(ROOT / name, to / name)
    shutil.copytree(ROOT / "src", to / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "docs" / "man", to / "docs" / "man")
    shutil.copytree(ROOT / "deploy", to / "deploy")
    shutil.copy(ROOT / "docs" / "deployment.md", to / "docs" / "deployment.md")
    return to


def test_the_same_sources_give_the_same_wheel(tmp_path: Path) -> None:
    first, second = _copy(tmp_path / "first"), _copy(tmp_path / "second")
    for path in second.rglob("*"):
        os.utime(path, (1_600_000_000, 1_600_000_000))

    wheels = [build_wheel(tree, tmp_path / f"{tree.name}.out", _EPOCH) for tree in (first, second)]

    one, other = (hashlib.sha256(wheel.read_bytes()).hexdigest() for wheel in wheels)
    assert one == other


def _built_image(archive: Path, host: str) -> bytes:
    """An archive as buildah writes it on a host, without what the host puts into it."""
    config = {"container": host, "config": {"Hostname": host, "User": "1"}, "container_config": {"Hostname": host}}
    files: dict[str, Any] = {f"{host}.json": config, "layer.tar": "layer", f"{host}/json": {"id": host}}
    files["manifest.json"] = [
        {"Config": f"{host}.json", "RepoTags": ["sandur:1"], "Layers": ["layer.tar", "layer.tar"]}
    ]
    with tarfile.open(archive, "w") as packed:
        for name, content in files.items():
            data = json.dumps(content).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            packed.addfile(entry, io.BytesIO(data))
    drop_build_host(archive)
    return archive.read_bytes()


def test_the_host_that_builds_an_image_leaves_nothing_in_it(tmp_path: Path) -> None:
    one, other = (_built_image(tmp_path / f"{host}.tar", host) for host in ("first", "second"))

    with tarfile.open(tmp_path / "first.tar") as archive:
        config, manifest, layer = archive.getnames()
        kept = json.load(archive.extractfile(config) or io.BytesIO())
    assert one == other
    assert kept == {"config": {"User": "1"}, "container_config": {}}
    assert (manifest, layer) == ("manifest.json", "layer.tar")


def test_the_same_chart_gives_the_same_archive_with_every_file(tmp_path: Path) -> None:
    chart = ROOT / "deploy" / "chart"
    copied = Path(shutil.copytree(chart, tmp_path / "copied"))
    (copied / "values.yaml").chmod(0o600)
    os.utime(copied / "Chart.yaml", (1_600_000_000, 1_600_000_000))

    one, other = (
        build_chart(tree, tmp_path / f"{tree.name}.tgz", int(_EPOCH)).read_bytes() for tree in (chart, copied)
    )

    with tarfile.open(tmp_path / "copied.tgz") as archive:
        names = archive.getnames()
        archive.extractall(tmp_path, filter="data")
    assert one == other
    assert sorted(names) == sorted(f"sandur/{one.relative_to(chart)}" for one in chart.rglob("*") if one.is_file())
    assert (tmp_path / "sandur" / "values.yaml").read_bytes() == (chart / "values.yaml").read_bytes()


def test_the_version_is_written_everywhere(tmp_path: Path) -> None:
    tree = _copy(tmp_path / "tree")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (unreleased)\n\n- New\n")

    write_version(tree, "9.8.7", "2026-01-31")

    assert 'version = "9.8.7"' in (tree / "pyproject.toml").read_text()
    assert '__version__ = "9.8.7"' in (tree / "src" / "sandur" / "__init__.py").read_text()
    assert "## 9.8.7 (2026-01-31)" in (tree / "CHANGELOG.md").read_text()
    assert (tree / "deploy" / "chart" / "Chart.yaml").read_text().count("9.8.7") == 2
    compose = yaml.safe_load((tree / "deploy" / "compose" / "compose.yaml").read_text())
    assert compose["services"]["catalog"]["image"] == "${SANDUR_IMAGE:-sandur:9.8.7}"
    for name in ("deploy/Containerfile", "docs/deployment.md"):
        text = (tree / name).read_text()
        assert "9.8.7" in text, name
        assert __version__ not in text, name


def test_a_file_that_lost_the_name_of_the_image_is_not_released(tmp_path: Path) -> None:
    tree = _copy(tmp_path / "tree")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (unreleased)\n\n- New\n")
    compose = tree / "deploy" / "compose" / "compose.yaml"
    compose.write_text(compose.read_text().replace(f"sandur:{__version__}", "sandur:latest"))

    with pytest.raises(NotReady, match=r"compose\.yaml: no name of the image"):
        write_version(tree, "9.8.7", "2026-01-31")

    assert 'version = "9.8.7"' not in (tree / "pyproject.toml").read_text()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    tree = _copy(tmp_path / "repository")
    (tree / "CHANGELOG.md").write_text("# Changelog\n\n## 0.1.0 (unreleased)\n\n- New\n")
    for arguments in (
        ("init", "--quiet"),
        ("config", "user.name", "Somebody"),
        ("config", "user.email", "somebody@example.org"),
        ("add", "--all"),
        ("commit", "--quiet", "--message", "first"),
    ):
        subprocess.run(["git", "-C", tree, *arguments], check=True)  # noqa: S607 - the git of this machine
    return tree


def test_a_release_is_one_commit_with_a_tag_and_can_be_built_again(repository: Path) -> None:
    prepare(repository, "9.8.7", "2026-01-31")
    released = (repository / ".git" / "refs" / "tags" / "v9.8.7").read_text()
    prepare(repository, "9.8.7", "2026-02-01")

    assert (repository / ".git" / "refs" / "tags" / "v9.8.7").read_text() == released
    assert "(2026-01-31)" in (repository / "CHANGELOG.md").read_text()


_BUILDAH: Final = f"""#!{sys.executable}
import pathlib, shutil, sys
folder = pathlib.Path(__file__).parent
with (folder / "commands").open("a") as log:
    log.write(repr(sys.argv[1:]) + "\\n")
if sys.argv[1] == "push":
    archive = sys.argv[3].removeprefix("docker-archive:").removesuffix(":" + sys.argv[2])
    shutil.copy(folder / "built.tar", archive)
sys.exit((folder / "fails").exists())
"""
"""A program with the calls of buildah that a release makes; `make deploy` builds a real image in the same way."""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of all programs that a release finds: only git."""
    folder = tmp_path / "programs"
    folder.mkdir()
    (folder / "git").symlink_to(shutil.which("git") or "")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def _install_buildah(programs: Path) -> None:
    _built_image(programs / "built.tar", "host")
    (programs / "buildah").write_text(_BUILDAH)
    (programs / "buildah").chmod(0o755)


def _release(repository: Path, to: Path, *options: str) -> int:
    return main(["9.8.7", "--date", "2026-01-31", "--to", str(to), *options], root=repository)


def _sums(folder: Path) -> Mapping[str, str]:
    lines = (folder / "SHA256SUMS").read_text().splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def test_a_release_has_everything_with_checksums_and_says_that_buildah_is_missing(
    repository: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "dist"

    code = _release(repository, to)

    said = capsys.readouterr().out
    assert (code, list(programs.iterdir())) == (0, [programs / "git"])
    assert "image: not built, buildah is not installed" in said
    assert "Publish with: git push --follow-tags" in said
    sums = _sums(to)
    assert set(sums) == {
        "sandur-9.8.7-py3-none-any.whl",
        "sandur-9.8.7.tgz",
        "sandur-9.8.7-constraints.txt",
        "sandur-9.8.7-licences.md",
        "sandur-9.8.7.cdx.json",
    }
    for name, digest in sums.items():
        assert hashlib.sha256((to / name).read_bytes()).hexdigest() == digest, name
    versions = dict(line.split("==") for line in (to / "sandur-9.8.7-constraints.txt").read_text().splitlines())
    assert versions["httpx"] == importlib.metadata.version("httpx")
    assert "sandur" not in versions


def test_the_same_commit_gives_the_same_release_and_an_image_with_its_versions(
    repository: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _install_buildah(programs)
    folders = [tmp_path / "first", tmp_path / "second"]

    codes = [_release(repository, to, "--image-options", "--build-arg BASE=base:1") for to in folders]

    assert codes == [0, 0]
    assert _sums(folders[0]) == _sums(folders[1])
    assert "sandur-9.8.7.image.tar" in _sums(folders[0])
    assert "image: sandur-9.8.7.image.tar" in capsys.readouterr().out
    build, push = (ast.literal_eval(line) for line in (programs / "commands").read_text().splitlines()[:2])
    assert build[0] == "bud"
    assert build[build.index("--tag") + 1] == push[1] == "sandur:9.8.7"
    assert build[build.index("--volume") + 1] == f"{folders[0]}:/dist:ro"
    arguments = [value for option, value in pairwise(build) if option == "--build-arg"]
    assert arguments == [
        "WHEEL=sandur-9.8.7-py3-none-any.whl",
        "PIP_CONSTRAINT=/dist/sandur-9.8.7-constraints.txt",
        "BASE=base:1",
    ]
    assert build[-1] == str(folders[0])


def test_a_release_whose_image_fails_says_which_command_and_fails(
    repository: Path, programs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _install_buildah(programs)
    (programs / "fails").touch()

    code = _release(repository, tmp_path / "dist")

    said = capsys.readouterr().out
    assert code == 1
    assert f"image: not built, this failed: {programs / 'buildah'} bud" in said
    assert "Publish with" not in said
    assert "sandur-9.8.7.tgz" in _sums(tmp_path / "dist")


def test_a_tree_that_is_not_ready_is_not_built(
    repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (repository / "README.md").write_text("changed")

    code = _release(repository, tmp_path / "dist")

    assert code == 1
    assert "release: the tree has changes" in capsys.readouterr().err
    assert not (tmp_path / "dist").exists()


@pytest.mark.parametrize(
    ("version", "change", "reason"),
    [
        ("next", "", "expected a version"),
        ("9.8.7", "README.md", "has changes"),
        ("9.8.7", "CHANGELOG.md", "has changes"),
    ],
)
def test_an_unready_tree_is_not_released(repository: Path, version: str, change: str, reason: str) -> None:
    if change:
        (repository / change).write_text("changed")

    with pytest.raises(NotReady, match=reason):
        prepare(repository, version, "2026-01-31")

    assert 'version = "0.1.0"' in (repository / "pyproject.toml").read_text()


def test_without_a_section_in_the_changelog_nothing_is_written(tmp_path: Path) -> None:
    tree = _copy(tmp_path / "tree")
    (tree / "CHANGELOG.md").write_text("# Changelog\n")

    with pytest.raises(NotReady, match="unreleased"):
        write_version(tree, "9.8.7", "2026-01-31")

    assert 'version = "9.8.7"' not in (tree / "pyproject.toml").read_text()


def test_every_dependency_has_a_licence_that_is_allowed() -> None:
    found = dependencies.packages()

    assert len(found) > 20
    assert {one.name: one.licence for one in found if dependencies.refused(one.licence)} == {}


@pytest.mark.parametrize(
    ("licence", "is_refused"),
    [
        ("MIT", False),
        ("Apache-2.0 AND BSD-2-Clause", False),
        ("GPL-3.0-only OR MIT", False),
        ("GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", True),
        ("", True),
    ],
)
def test_a_licence_is_refused_unless_one_choice_is_allowed(licence: str, *, is_refused: bool) -> None:
    assert dependencies.refused(licence) is is_refused


def test_the_list_of_components_is_valid_and_complete() -> None:
    made = dependencies.sbom(int(_EPOCH), "9.8.7")

    problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(made))

    assert problem is None, problem
    names = {component["name"] for component in made["components"]}
    assert {"httpx", "msgspec", "obstore", "uvicorn"} <= names
    assert made == dependencies.sbom(int(_EPOCH), "9.8.7")
    refs = {made["metadata"]["component"]["bom-ref"], *(component["bom-ref"] for component in made["components"])}
    assert {ref for one in made["dependencies"] for ref in (one["ref"], *one["dependsOn"])} == refs
