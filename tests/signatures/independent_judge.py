"""A second judge of requests to S3, written from the sentences of the rules, in another way than the first.

It reads a request as a generous service would: it decodes, joins and parses with the tools of the standard library, and
lists everything that the request could touch.
"""

import posixpath
from collections.abc import Collection, Iterator
from typing import Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit
from xml.etree import ElementTree as ET

from sandur.catalog.credentials.signed_requests import StorageRequest
from tests.signatures.generated import BUCKET, DATA_HOME, HOME, REGION

_DANGEROUS: Final = (
    *("x-amz-copy-source", "x-amz-acl", "x-amz-grant-", "x-amz-security-token", "x-amz-website", "x-amz-object-lock"),
    *("x-amz-tagging", "x-amz-storage-class", "x-amz-rename", "x-amz-meta-", "x-amz-bypass", "x-amz-mfa"),
    *("x-amz-write-offset", "authorization", "x-http-method", "x-forwarded"),
)
_LIST: Final = {"delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner", "x-id"}


def objections(request: StorageRequest, endpoint: str) -> Iterator[str]:
    """Why the request must not be signed; nothing if it may be."""
    uri = urlsplit(request.uri)
    if f"{uri.scheme}://{uri.netloc}" != endpoint or request.region != REGION or uri.fragment:
        yield "host or region"
    if any(letter in request.uri for letter in "\t\r\n #\\"):
        yield "characters"
    yield from _header_objections(request)
    parameters = parse_qsl(uri.query, keep_blank_values=True)
    names = [name for name, _ in parameters]
    if len(set(names)) != len(names):
        yield "repeated parameter"
    _, bucket, *rest = uri.path.split("/", 2)
    if bucket != BUCKET:
        yield "bucket"
    key = rest[0] if rest else ""
    if key:
        yield from _object_objections(request.method, key, set(names))
    else:
        yield from _bucket_objections(request, dict(parameters))


def _header_objections(request: StorageRequest) -> Iterator[str]:
    lowered = [name.lower() for name in request.headers]
    if len(set(lowered)) != len(lowered):
        yield "repeated header"
    for name, values in request.headers.items():
        if name.lower().startswith(_DANGEROUS):
            yield f"header {name}"
        if name.lower().startswith("x-amz-") and name.lower() != "x-amz-date" and len(values) != 1:
            yield f"values of {name}"


def _object_objections(method: str, raw: str, names: Collection[str]) -> Iterator[str]:
    if quote(unquote(raw), safe="/~") != raw or "%2f" in raw.lower():
        yield "encoding"
    yield from _place_objections(unquote(raw))
    allowed: dict[str, set[frozenset[str]]] = {
        "GET": {frozenset(), frozenset({"partNumber"})},
        "HEAD": {frozenset(), frozenset({"partNumber"})},
        "PUT": {frozenset(), frozenset({"partNumber", "uploadId"})},
        "POST": {frozenset({"uploads"}), frozenset({"uploadId"})},
        "DELETE": {frozenset(), frozenset({"uploadId"})},
    }
    if frozenset(names) - {"x-id"} not in allowed.get(method, set()):
        yield "operation"


def _bucket_objections(request: StorageRequest, parameters: dict[str, str]) -> Iterator[str]:
    names = set(parameters)
    if request.method == "GET":
        if parameters.get("list-type") != "2" or "prefix" not in names or names - _LIST - {"list-type", "prefix"}:
            yield "list"
        prefix = parameters.get("prefix", "")
        yield from _place_objections(prefix + "x" if prefix.endswith("/") else prefix)
        return
    if request.method != "POST" or names - {"x-id"} != {"delete"} or request.body is None:
        yield "operation on the bucket"
        return
    try:
        root = ET.fromstring(request.body)  # noqa: S314 - of this test
    except (ET.ParseError, UnicodeEncodeError):
        yield "body"
        return
    if "<!" in request.body or "VersionId" in request.body:
        yield "body"
    found = [node.text or "" for node in root.iter() if node.tag.rpartition("}")[2] == "Key"]
    if not found:
        yield "no keys"
    for key in found:
        yield from _place_objections(key)


def _place_objections(key: str) -> Iterator[str]:
    """A place must be below a home, read as it is, resolved like a path, or decoded once or twice more."""
    for text in (key, unquote(key), unquote(unquote(key))):
        resolved = posixpath.normpath("/" + text)[1:]
        if not resolved.startswith((f"{HOME}/", f"{DATA_HOME}/")):
            yield f"place {text!r}"
    if "" in key.split("/") or {".", ".."} & set(key.split("/")):
        yield "segments"
