"""Which files of a table are orphans, and which of them may be deleted (O1–O7): decisions on values alone.

A file is condemned by one run and deleted by a later one. Both runs decide here, from the files that were listed and
the references that were read; what is kept has a reason.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from sandur.catalog.locations import MANAGED_FOLDER, Address, canonical_address, normalize_location
from sandur.catalog.maintenance.policies import GC_ENABLED, Orphans, forbids_deletion
from sandur.catalog.record_versions import Record
from sandur.errors import Invalid
from sandur.settings import seconds_of

CONDEMNED_MAX: Final = 10_000
"""The number of files that one run condemns in one table."""
SWEPT_MAX: Final = 100_000
SWEPT_KEPT_MS: Final = 90 * 86_400_000
"""How long a deleted file stays on the list that commits are compared with (O5)."""
FORBIDDEN: Final = f"it has {GC_ENABLED}=false"
LEFT: Final = "left for the next run"
"""The reason for files that stay only because they are too many."""
ENCRYPTION_KEY: Final = "encryption.key-id"
SYSTEM_LEVELS: Final = ("system",)

_METADATA_SUFFIXES: Final = (".metadata.json", ".metadata.json.gz")
_OWN_NAMES: Final = frozenset({"version-hint.text"})
ANOTHERS: Final = "a file of another table"
LOG_FOLDER: Final = "_delta_log"
SIDECARS_FOLDER: Final = "_sidecars"
_STAGED_FOLDER: Final = "_staged_commits"
_CHANGES_FOLDER: Final = "_change_data"
_LOG_FILE: Final = re.compile(
    r"(\d{20})\.(?:json|crc|\d{20}\.compacted\.json|checkpoint\.(?:[0-9a-f-]{36}\.|\d{10}\.\d{10}\.)?(?:parquet|json))\Z"
)


class FoundFile(NamedTuple):
    """A file as it was listed. `modified_ms` is None if the store does not know its age."""

    location: str
    version: str
    size_bytes: int
    modified_ms: int | None


class Found(NamedTuple):
    """What an engine says of a table: it has `listed` files, and refers neither to `files` nor to `more` others."""

    files: Sequence[FoundFile]
    listed: int
    more: int = 0


class CondemnedFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file that nothing referred to at `found_ms`, in the run `run`."""

    location: str
    version: str
    size_bytes: int
    modified_ms: int
    found_ms: int
    run: str


class CondemnedFiles(Record, frozen=True, kw_only=True):
    """The condemned files of one table; a later run deletes them (O2)."""

    uuid: str
    files: tuple[CondemnedFile, ...] = ()


class SweptFile(msgspec.Struct, frozen=True, array_like=True):
    """A file that was deleted, or is about to be: the hash of its location, and its version (O5)."""

    name: str
    version: str
    swept_ms: int


class SweptFiles(Record, frozen=True, kw_only=True):
    """O5: the files of a table that were deleted. A commit that adds one of them is refused."""

    files: tuple[SweptFile, ...] = ()


class Decision(NamedTuple):
    """The files that may be condemned or deleted, how many are kept by reason, and why nothing may be done at all.

    `left` is the number of files that were too many for one run.
    """

    files: tuple[FoundFile, ...] = ()
    kept: Mapping[str, int] = {}
    refusal: str = ""
    left: int = 0


def identity_of(location: str) -> str:
    """The form in which files are compared: two texts that some engine reads as one file have the same."""
    try:
        return str(canonical_address(location))
    except Invalid:
        return normalize_location(location)


def name_of(location: str) -> str:
    """The short form of a file's identity on the list of swept files."""
    return hashlib.sha256(identity_of(location).encode()).hexdigest()[:32]


def refusal_of(properties: Mapping[str, str], *, kind: str, levels: Sequence[str]) -> str:
    """Why no file of a table is ever deleted; empty if nothing forbids it. `levels` are those of its namespace."""
    if kind != "table":
        return f"it is a {kind}"
    if tuple(levels) == SYSTEM_LEVELS:
        return "it is a system table: the job that writes it removes its files"
    if forbids_deletion(properties):
        return FORBIDDEN
    if ENCRYPTION_KEY in properties:
        return "it is encrypted: its manifests cannot be read"
    return ""


class Suspects:
    """Listed files that no reference names, as far as references were read.

    Only files that are old enough and that the removal of orphans may touch at all are suspects (O1, O4). A reference
    with the same path under another scheme or host keeps a file, too: both may be the same file.
    """

    def __init__(
        self,
        files: Iterable[FoundFile],
        place: str,
        *,
        age_ms: int,
        now_ms: int,
        names: "NameReason | None" = None,
    ) -> None:
        self.kept: Counter[str] = Counter()
        self._names = names or iceberg_name_reason
        self._paths: set[tuple[str, ...]] = set()
        self._files: dict[str, FoundFile] = {}
        self._by_path: dict[tuple[str, ...], list[str]] = {}
        self.listed = 0
        self.refusal = ""
        within = canonical_address(place)
        for file in files:
            self.listed += 1
            self._paths.add(_path_of(file.location))
            if reason := self._reason(file, within, now_ms - age_ms):
                self.kept[reason] += 1
            else:
                self._add(file)

    def _reason(self, file: FoundFile, place: Address, before_ms: int) -> str:
        """Why a file is no suspect; empty if it is one."""
        try:
            address = canonical_address(file.location)
        except Invalid:
            return "its location is not clear"
        if not address.is_within(place) or address == place:
            return "outside of the table's location"
        below = address.segments[len(place.segments) :]
        reason = self._names(below)
        if reason == ANOTHERS:
            self.refusal = f"other tables have files in {'/'.join(below[:-1])}"
        return reason or _age_reason(file, before_ms)

    def _add(self, file: FoundFile) -> None:
        # By its own text: the identities of two files may be equal, such as those of `a b` and `a%20b`.
        self._files[file.location] = file
        self._by_path.setdefault(_path_of(file.location), []).append(file.location)

    def __len__(self) -> int:
        return len(self._files)

    def clear(self, references: Iterable[str], reason: str = "") -> None:
        """Remove the files that are referred to, or that stay for another reason."""
        for reference in references:
            path = _path_of(reference)
            for location in self._by_path.pop(path, ()):
                del self._files[location]
                is_same = identity_of(location) == identity_of(reference)
                referred_to = "referred to" if is_same else "referred to under another scheme or host"
                self.kept[reason or referred_to] += 1

    def keep_younger(self, than_ms: int) -> None:
        """Remove the files that are younger than this time, because the table asks for a higher age."""
        for location, file in list(self._files.items()):
            if reason := _age_reason(file, than_ms):
                self._by_path[_path_of(location)].remove(location)
                del self._files[location]
                self.kept[reason] += 1

    def missing_share(self, references: Iterable[str]) -> float:
        """The share of these references that the listing does not have; 0 without references."""
        paths = [_path_of(reference) for reference in references]
        return sum(path not in self._paths for path in paths) / len(paths) if paths else 0.0

    @property
    def files(self) -> tuple[FoundFile, ...]:
        """What is left, in the order of the locations."""
        return tuple(sorted(self._files.values()))


NameReason = Callable[[Sequence[str]], str]
"""Why a file with these segments below the table's location is no suspect; empty if it may be one."""


def iceberg_name_reason(below: Sequence[str]) -> str:
    if MANAGED_FOLDER in below or LOG_FOLDER in below:
        return ANOTHERS
    if _is_hidden(below):
        return "hidden"
    if below[-1].endswith(_METADATA_SUFFIXES) or below[-1] in _OWN_NAMES:
        return "a metadata file, which garbage collection removes"
    return ""


def delta_name_reason(published: int) -> NameReason:
    """The same for a Delta table whose commits up to a version are published."""

    def reason(below: Sequence[str]) -> str:
        if below[:2] == (LOG_FOLDER, _STAGED_FOLDER):
            version = below[-1].partition(".")[0]
            is_published = version.isdecimal() and int(version) <= published
            return "" if is_published else "a staged commit that is not published"
        if below[0] == LOG_FOLDER:
            return "" if _is_old_log(below[1:], published) else "a file of the log"
        if MANAGED_FOLDER in below or LOG_FOLDER in below or below[-1].endswith(_METADATA_SUFFIXES):
            return ANOTHERS
        return "hidden" if _is_hidden(below[1:] if below[0] == _CHANGES_FOLDER else below) else ""

    return reason


def _is_old_log(below: Sequence[str], published: int) -> bool:
    """Whether a file of a log may be one that has expired (O12), if versions up to `published` are in the log."""
    if below[:-1] == (SIDECARS_FOLDER,):
        return published >= 0
    found = _LOG_FILE.match(below[0]) if len(below) == 1 else None
    return found is not None and int(found[1]) < published


def is_in_log(location: str) -> bool:
    """Whether a file belongs to a Delta log itself: no commit can name it."""
    folder = location.split("/")[:-1]
    return folder[-1:] == [LOG_FOLDER] or folder[-2:] == [LOG_FOLDER, SIDECARS_FOLDER]


def _is_hidden(below: Sequence[str]) -> bool:
    return any(one[:1] in {"_", "."} and "=" not in one for one in below)


def _age_reason(file: FoundFile, before_ms: int) -> str:
    """O1."""
    if not file.modified_ms:
        return "of unknown age"
    return "younger than the minimum age" if file.modified_ms > before_ms else ""


def _path_of(location: str) -> tuple[str, ...]:
    """A location without its scheme and host; for a location that no address has, its text."""
    try:
        return canonical_address(location).segments
    except Invalid:
        return tuple(normalize_location(location).partition("://")[2].strip("/").split("/")[1:])


def condemned(suspects: Suspects, share_max: float, found: Found | None = None) -> Decision:
    """What a run may condemn after all references were read (O7). Without `found`, all files of the table are listed.

    The share counts also the files that an engine found and that were too many to look at.
    """
    total = max(found.listed if found else suspects.listed, 1)
    if suspects.refusal:
        return Decision((), suspects.kept, suspects.refusal)
    share = (len(suspects) + (found.more if found else 0)) / total
    if share > share_max:
        return Decision(
            (),
            suspects.kept,
            f"{share:.0%} of its {total:,} files look like orphans, more than {share_max:.0%}: "
            "its metadata may name the files in another way than the store does",
        )
    files = suspects.files
    left = max(0, len(files) - CONDEMNED_MAX) + (found.more if found else 0)
    kept = {**suspects.kept, LEFT: left} if left else suspects.kept
    return Decision(files[:CONDEMNED_MAX], kept, left=left)


def merged_condemned(
    before: Sequence[CondemnedFile], found: Iterable[FoundFile], *, run: str, now_ms: int
) -> tuple[CondemnedFile, ...]:
    """The list after a run: a file that an earlier run condemned at the same version keeps its time."""
    known = {(one.location, one.version): one for one in before}
    return tuple(
        known.get((file.location, file.version))
        or CondemnedFile(
            location=file.location,
            version=file.version,
            size_bytes=file.size_bytes,
            modified_ms=file.modified_ms or 0,
            found_ms=now_ms,
            run=run,
        )
        for file in found
    )


def due_files(files: Iterable[CondemnedFile], policy: Orphans, *, run: str, now_ms: int) -> tuple[CondemnedFile, ...]:
    """O2: what an earlier run condemned at least `orphans.wait` ago."""
    wait_ms = seconds_of(policy.wait) * 1_000
    return tuple(one for one in files if one.run != run and one.found_ms + wait_ms <= now_ms)


def swept_with(before: Sequence[SweptFile], files: Sequence[CondemnedFile], *, now_ms: int) -> tuple[SweptFile, ...]:
    """O5: the list with these files. Those that were deleted long ago go; at most SWEPT_MAX stay.

    The caller checks the room first (`swept_room`): a file that is deleted must be on the list.
    """
    kept = {(one.name, one.version): one for one in before if one.swept_ms + SWEPT_KEPT_MS > now_ms}
    for file in files:
        name = name_of(file.location)
        kept[name, file.version] = SweptFile(name, file.version, now_ms)
    return tuple(kept.values())


def swept_room(before: Sequence[SweptFile], *, now_ms: int) -> int:
    """How many files may be added to the list."""
    return max(0, SWEPT_MAX - sum(one.swept_ms + SWEPT_KEPT_MS > now_ms for one in before))


def swept_among(listed: Sequence[SweptFile], locations: Iterable[str]) -> dict[str, frozenset[str]]:
    """Those of the locations that are on the list, with the versions that were swept."""
    versions: dict[str, set[str]] = {}
    for one in listed:
        versions.setdefault(one.name, set()).add(one.version)
    found = ((location, versions.get(name_of(location))) for location in locations)
    return {location: frozenset(swept) for location, swept in found if swept}
