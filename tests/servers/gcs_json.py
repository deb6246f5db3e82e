"""The part of Google Cloud Storage's JSON API that PyArrow speaks, over the bucket of the double."""

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qs, unquote, urlsplit

from tests.servers.access_boundary import Request

if TYPE_CHECKING:
    from email.message import Message

    from tests.servers.gcs import Blob, Bucket

JSON_PATHS: Final = ("/storage/v1/", "/upload/", "/download/")
_OBJECT: Final = re.compile(r"/(?:storage|download/storage)/v1/b/(?P<bucket>[^/]+)/o(?:/(?P<name>[^/]+))?")
_SESSION: Final = re.compile(r"/upload/session/(\d+)")
_RANGE: Final = re.compile(r"bytes=(\d+)-(\d*)")
_ENDED: Final = re.compile(r"bytes (?:\*|\d+-\d+)/\d+")

Headers: TypeAlias = "Message[str, str]"
Denial = Callable[[Request], int]
"""The status that refuses a request; 0 if the token allows it."""


class Reply(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes = b"{}"
    headers: Mapping[str, str] = {}


class JsonApi:
    """Objects by the JSON API. The caller holds the lock of the bucket."""

    def __init__(self, bucket: "Bucket", name: str) -> None:
        self._bucket = bucket
        self._resource = f"projects/_/buckets/{name}"
        self._uploads: list[tuple[str, bytearray]] = []

    def answer(self, method: str, url: str, headers: Headers, body: bytes, denial: Denial) -> Reply:
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if found := _SESSION.fullmatch(parts.path):
            return self._upload(int(found[1]), body, headers.get("Content-Range") or "", denial)
        if parts.path.startswith("/upload/"):
            self._uploads.append((query["name"], bytearray()))
            session = f"http://{headers['Host']}/upload/session/{len(self._uploads) - 1}"
            return self._checked("create", query["name"], denial) or Reply(200, headers={"Location": session})
        found = _OBJECT.fullmatch(parts.path)
        if found is None:
            return Reply(400)
        if found["name"] is None:
            return self._list(query.get("prefix", ""), denial)
        return self._object(method, unquote(found["name"]), headers, denial, is_media=query.get("alt") == "media")

    def _object(self, method: str, name: str, headers: Headers, denial: Denial, *, is_media: bool) -> Reply:
        if refused := self._checked("delete" if method == "DELETE" else "get", name, denial):
            return refused
        blob = self._bucket.find(name)
        if blob is None:
            return Reply(404)
        if method == "DELETE":
            self._bucket.remove(name)
            return Reply(204, b"")
        if not is_media:
            return Reply(200, json.dumps(self._described(name, blob)).encode())
        wanted = _RANGE.fullmatch(headers.get("Range") or "bytes=0-")
        start, end = (int(wanted[1]), int(wanted[2] or len(blob.data))) if wanted else (0, len(blob.data))
        return Reply(206 if headers.get("Range") else 200, blob.data[start : end + 1])

    def _upload(self, session: int, body: bytes, content_range: str, denial: Denial) -> Reply:
        name, received = self._uploads[session]
        if refused := self._checked("create", name, denial):
            return refused
        received += body
        if content_range and not _ENDED.fullmatch(content_range):
            return Reply(308, b"", {"Range": f"bytes=0-{len(received) - 1}"})
        return Reply(200, json.dumps(self._described(name, self._bucket.write(name, bytes(received)))).encode())

    def _list(self, prefix: str, denial: Denial) -> Reply:
        if status := denial(Request("storage.objects.list", self._resource, prefix)):
            return _refused(status)
        names = self._bucket.names(prefix=prefix, after="", count=1_000)
        items = [self._described(name, blob) for name in names if (blob := self._bucket.find(name))]
        return Reply(200, json.dumps({"kind": "storage#objects", "items": items}).encode())

    def _checked(self, verb: str, name: str, denial: Denial) -> Reply | None:
        status = denial(Request(f"storage.objects.{verb}", f"{self._resource}/objects/{name}"))
        return _refused(status) if status else None

    def _described(self, name: str, blob: "Blob") -> Mapping[str, object]:
        return {
            "kind": "storage#object",
            "bucket": self._resource.rpartition("/")[2],
            "name": name,
            "generation": str(blob.generation),
            "size": str(len(blob.data)),
            "etag": blob.etag,
            "updated": "2026-01-01T00:00:00Z",
            "timeCreated": "2026-01-01T00:00:00Z",
        }


def _refused(status: int) -> Reply:
    return Reply(status, json.dumps({"error": {"code": status, "message": "refused"}}).encode())
