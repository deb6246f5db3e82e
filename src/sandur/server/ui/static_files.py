"""The stylesheet and the scripts of the pages. Their address has the hash of all of them, so they never change."""

import hashlib
from functools import cache
from importlib import resources
from typing import Final, NamedTuple

from sandur.errors import NotFound
from sandur.server.http import CACHE_CONTROL, CONTENT_TYPE, Answer
from sandur.server.ui.links import ROOT

_TYPES: Final = {".css": b"text/css; charset=utf-8", ".js": b"text/javascript; charset=utf-8", ".svg": b"image/svg+xml"}
_IMMUTABLE: Final = (CACHE_CONTROL, b"public, max-age=31536000, immutable")
_HASH_CHARS: Final = 16


class StaticFiles(NamedTuple):
    """All files by name, and the hash of them."""

    hash: str
    files: dict[str, bytes]

    @property
    def address(self) -> str:
        return f"{ROOT}/static/{self.hash}"


@cache
def static_files() -> StaticFiles:
    folder = resources.files("sandur.server.ui") / "static"
    files = {one.name: one.read_bytes() for one in sorted(folder.iterdir(), key=lambda one: one.name)}
    digest = hashlib.sha256()
    for name, data in files.items():
        digest.update(b"%d %s %d " % (len(name), name.encode(), len(data)) + data)
    return StaticFiles(digest.hexdigest()[:_HASH_CHARS], files)


def static_answer(hash_: str, name: str) -> Answer:
    """The file; raises NotFound for another name, and for the hash of another release."""
    known = static_files()
    data = known.files.get(name) if hash_ == known.hash else None
    if data is None:
        raise NotFound(f"file {name[:100]} does not exist in this release", subject="file")
    return Answer(200, data, ((CONTENT_TYPE, _TYPES[name[name.rindex(".") :]]), _IMMUTABLE))
