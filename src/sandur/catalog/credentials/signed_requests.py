"""Requests to S3 that clients have signed: which of them stay within the locations of a table.

The judge reads the very text that is signed and knows what each allowed request does. Whatever it does not know, it
refuses: an unknown header or parameter can copy from another table, publish an object or reach another version.
"""

import functools
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from sandur.catalog.credentials.delete_lists import deleted_keys, refusal
from sandur.catalog.credentials.profiles import DEFAULT_REGION, StorageProfile
from sandur.catalog.locations import DECODES_MAX, is_own_folder, normalize_location
from sandur.errors import Forbidden

URI_CHARS_MAX: Final = 16_384
HEADERS_MAX: Final = 100
KEY_BYTES_MAX: Final = 1_024
_ENCODED_CHARS_MAX: Final = 3 * KEY_BYTES_MAX
_QUOTED_CHARS_MAX: Final = 100
_SEGMENTS_REMEMBERED_MAX: Final = 4_096

UNSIGNED_PAYLOAD: Final = "UNSIGNED-PAYLOAD"
_UNSIGNED_TRAILER: Final = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"

_URI: Final = re.compile(
    r"(https?)://((?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?)(/[A-Za-z0-9._~%/-]*)(?:\?([A-Za-z0-9._~%=&-]*))?"
)
_DEFAULT_PORTS: Final = {"https": ":443", "http": ":80"}
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_VALUE: Final = re.compile(r"[\x20-\x7e]*")

READS: Final = frozenset({"GET", "HEAD"})

# Per method: the sets of parameters that an object and a bucket may be requested with. `x-id` may be in each of them.
_OBJECT_QUERIES: Final[Mapping[str, Sequence[frozenset[str]]]] = {
    "GET": (frozenset(), frozenset({"partNumber"})),
    "HEAD": (frozenset(), frozenset({"partNumber"})),
    "PUT": (frozenset(), frozenset({"partNumber", "uploadId"})),
    "POST": (frozenset({"uploads"}), frozenset({"uploadId"})),
    "DELETE": (frozenset(), frozenset({"uploadId"})),
}
_LIST_NEEDS: Final = frozenset({"list-type", "prefix"})
_LIST_MAY: Final = frozenset(
    {"delimiter", "max-keys", "continuation-token", "start-after", "encoding-type", "fetch-owner"}
)
_PARAMETER_VALUES: Final[Mapping[str, re.Pattern[str]]] = {
    "list-type": re.compile("2"),
    "uploads": re.compile(""),
    "delete": re.compile(""),
    "partNumber": re.compile(r"[1-9][0-9]{0,4}"),
    "max-keys": re.compile(r"[0-9]{1,9}"),
    "encoding-type": re.compile("url"),
    "fetch-owner": re.compile("true|false"),
    "uploadId": re.compile(r"[\x21-\x7e]+"),
    "x-id": re.compile("[A-Za-z0-9]+"),
}

# Services require a signature for each `x-amz-` header that is sent.
_SIGNED: Final = frozenset(
    {
        "content-encoding",
        "content-md5",
        "content-type",
        "x-amz-checksum-algorithm",
        "x-amz-checksum-mode",
        "x-amz-checksum-type",
        "x-amz-content-sha256",
        "x-amz-decoded-content-length",
        "x-amz-expected-bucket-owner",
        "x-amz-mp-object-size",
        "x-amz-sdk-checksum-algorithm",
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-bucket-key-enabled",
        "x-amz-te",
        "x-amz-trailer",
        "x-amz-user-agent",
        *(f"x-amz-checksum-{name}" for name in ("crc32", "crc32c", "crc64nvme", "sha1", "sha256")),
    }
)
# Java uses a signature again for another range of the same file, and proxies change the others.
_UNSIGNED: Final = frozenset(
    {
        "accept",
        "accept-encoding",
        "amz-sdk-invocation-id",
        "amz-sdk-request",
        "amz-sdk-retry",
        "baggage",
        "connection",
        "content-length",
        "expect",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "range",
        "referer",
        "traceparent",
        "tracestate",
        "transfer-encoding",
        "user-agent",
        "x-amz-date",
        "x-amzn-trace-id",
    }
)


class StorageRequest(NamedTuple):
    """A request to S3 as the client describes it. `body` is None unless the client sends the body along."""

    method: str
    uri: str
    region: str
    headers: Mapping[str, Sequence[str]]
    body: str | None = None

    @property
    def is_read(self) -> bool:
        return self.method in READS


class Home(NamedTuple):
    """A folder of a table: the profile of its storage, its bucket, and what its keys begin with, with a slash."""

    profile: StorageProfile
    bucket: str
    folder: str


class JudgedRequest(NamedTuple):
    """A request that stays within the folders of its table, in the parts that a signature is made of.

    `query` is sorted and encoded. `headers` are those to sign, by name in lower case; the client has sent them.
    `places` are the objects or the folder that the request is about.
    """

    profile: StorageProfile
    method: str
    uri: str
    host: str
    path: str
    query: str
    headers: Mapping[str, str]
    payload_hash: str
    places: tuple[str, ...]
    is_delete_list: bool = False


def home_of(profile: StorageProfile, location: str) -> Home:
    """The folder of a location; Forbidden if the location is a whole bucket."""
    bucket, _, folder = normalize_location(location).partition("://")[2].partition("/")
    if not folder:
        raise refusal(f"the table's location {location} is a whole bucket")
    return Home(profile, bucket, f"{folder}/")


def region_of(profile: StorageProfile) -> str:
    """The region that requests are signed for."""
    return profile.region or DEFAULT_REGION


def possible_locations(request: StorageRequest) -> Sequence[str]:
    """What a request is about, before its table and its bucket are known: by its path, and by the name of its host."""
    uri = _parsed(request.uri)
    by_path, by_host = uri.path[1:], f"{uri.host.partition('.')[0]}{uri.path}"
    return [f"s3://{text}" for text in (_named(request, uri, by_path), _named(request, uri, by_host)) if text]


def _named(request: StorageRequest, uri: "_Uri", text: str) -> str:
    """The bucket and the key in a path, or the key that a query or body names; empty without a key."""
    bucket, _, raw_key = text.partition("/")
    if raw_key:
        key = _key(raw_key)
    elif request.method == "POST":
        key = deleted_keys(_body(request))[0]
    else:
        key = dict(_parameters(uri.query)).get("prefix", "").rstrip("/")
    return f"{bucket}/{key}" if key else ""


def judge(request: StorageRequest, homes: Sequence[Home]) -> JudgedRequest:
    """The request in the parts that are signed; Forbidden, with what was found, unless it stays within the homes."""
    uri = _parsed(request.uri)
    reached = [(home, key) for home in homes if (key := _raw_key(uri, home)) is not None]
    if not reached:
        raise _elsewhere(uri)
    raw_key, around = reached[0][1], [home for home, _ in reached]
    parameters = _parameters(uri.query)
    headers = _signed_headers(request.headers, uri)
    payload_hash = _payload_hash(headers)
    is_delete_list = False
    if raw_key:
        keys: Sequence[str] = (_key(raw_key),)
        _check_object_query(request.method, parameters)
    elif request.method == "GET":
        keys = (_listed_prefix(parameters),)
    else:
        _check_delete_list(request.method, parameters)
        body = _body(request)
        keys, is_delete_list = deleted_keys(body), True
        payload_hash = hashlib.sha256(body.encode()).hexdigest()
    profile = _profile_of(keys, around, is_prefix=request.method == "GET" and not raw_key)
    if request.region != region_of(profile):
        raise refusal(f"its region {_quoted(request.region)} is not the region of the bucket, {region_of(profile)}")
    headers.pop("x-amz-content-sha256", None)
    return JudgedRequest(
        profile=profile,
        method=request.method,
        uri=request.uri,
        host=uri.host,
        path=uri.path,
        query="&".join(f"{name}={value}" for name, value in sorted(_encoded(parameters))),
        headers=headers,
        payload_hash=payload_hash,
        places=tuple(f"s3://{around[0].bucket}/{key}" for key in keys),
        is_delete_list=is_delete_list,
    )


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTED_CHARS_MAX else text[:_QUOTED_CHARS_MAX] + "…")


class _Uri(NamedTuple):
    """A URI as it is sent. `host` has its port, unless that is the default of the scheme."""

    scheme: str
    host: str
    path: str
    query: str


@functools.lru_cache(1_024)
def _parsed(text: str) -> _Uri:
    found = _URI.fullmatch(text) if len(text) <= URI_CHARS_MAX else None
    if found is None:
        raise refusal(f"its URI {_quoted(text)} is not a plain http or https URI in percent-encoding")
    scheme, host = found[1], found[2]
    return _Uri(scheme, host.removesuffix(_DEFAULT_PORTS[scheme]), found[3], found[4] or "")


def _elsewhere(uri: _Uri) -> Forbidden:
    where = _quoted(f"{uri.scheme}://{uri.host}{uri.path}")
    return refusal(
        f"{where} is not in the bucket of the table, at the endpoint and in the address style of its storage"
    )


class _Addresses(NamedTuple):
    """The hosts of a service. Only AWS understands both styles at the same hosts."""

    scheme: str
    path_style: tuple[str, ...]
    virtual_hosted: tuple[str, ...]


@functools.lru_cache(256)
def _addresses(endpoint: str, region: str, *, path_style: bool) -> _Addresses:
    if endpoint:
        scheme, _, host = endpoint.rstrip("/").lower().partition("://")
        hosts = (host.removesuffix(_DEFAULT_PORTS.get(scheme, "/")),)
        return _Addresses(scheme, hosts if path_style else (), () if path_style else hosts)
    domain = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    regional = [f"{name}.{region}.{domain}" for name in ("s3", "s3.dualstack", "s3-fips")]
    every = (*regional, *(["s3.amazonaws.com"] if region == DEFAULT_REGION else []))
    return _Addresses("https", every, every)


def _raw_key(uri: _Uri, home: Home) -> str | None:
    """The encoded key in a URI, empty for the bucket itself; None if the URI is not in the bucket."""
    profile = home.profile
    addresses = _addresses(profile.endpoint, region_of(profile), path_style=profile.path_style)
    if uri.scheme != addresses.scheme:
        return None
    if uri.host in addresses.path_style:
        _, bucket, *rest = uri.path.split("/", 2)
        return rest[0] if rest and bucket == home.bucket else "" if bucket == home.bucket else None
    host = uri.host.removeprefix(f"{home.bucket}.")
    return uri.path[1:] if host != uri.host and host in addresses.virtual_hosted else None


def _key(raw: str) -> str:
    """The key that a path names; Forbidden unless its encoding is the only one that SDKs and services use for it."""
    if len(raw) > _ENCODED_CHARS_MAX:
        raise refusal(f"its key {_quoted(raw)} is longer than {KEY_BYTES_MAX} bytes")
    return "/".join(map(_segment, raw.split("/"))) if "%" in raw else raw


@functools.lru_cache(_SEGMENTS_REMEMBERED_MAX)
def _segment(raw: str) -> str:
    try:
        text = unquote(raw, errors="strict")
    except UnicodeDecodeError:
        raise refusal(f"the percent-encoding of {_quoted(raw)} in its key is not UTF-8") from None
    normal = quote(text, safe="/~")  # With the slash: an encoded slash is not normal.
    if normal != raw:
        raise refusal(f"{_quoted(raw)} in its key is not in the normal percent-encoding, {_quoted(normal)}")
    return text


def _check_key(key: str) -> None:
    """Forbidden for a key that a service could take for another one."""
    if len(key.encode(errors="replace")) > KEY_BYTES_MAX:
        raise refusal(f"its key {_quoted(key)} is longer than {KEY_BYTES_MAX} bytes")
    if not key.isprintable() or "\\" in key:
        raise refusal(f"its key {_quoted(key)} contains a backslash or a character that is not printable")
    if "" in key.split("/"):
        raise refusal(f"its key {_quoted(key)} contains an empty segment")
    # Some services decode once more than clients encode.
    decoded = key
    for _ in range(DECODES_MAX):
        if not {".", ".."}.isdisjoint(decoded.split("/")):
            raise refusal(f"its key {_quoted(key)} contains the segment '.' or '..'")
        once = unquote(decoded) if "%" in decoded else decoded
        if once == decoded:
            break
        decoded = once
    else:
        raise refusal(f"its key {_quoted(key)} is percent-encoded many times")
    if is_own_folder(decoded):
        raise refusal(f"its key {_quoted(key)} is in the catalog's own folder")


def _profile_of(keys: Iterable[str], homes: Sequence[Home], *, is_prefix: bool) -> StorageProfile:
    """The profile of the homes that the keys are in; Forbidden if one is in no home, or in one of another profile."""
    profiles: list[StorageProfile] = []
    for key in keys:
        # The prefix of a list may be a home itself, with its slash, or end with a slash below it.
        _check_key(key.removesuffix("/") if is_prefix else key)
        home = next((one for one in homes if key.startswith(one.folder)), None)
        if home is None:
            what = "prefix" if is_prefix else "key"
            raise refusal(f"its {what} {_quoted(key)} is not below a location of the table")
        if home.profile not in profiles:
            profiles.append(home.profile)
    if len(profiles) != 1:
        raise refusal("it names objects that need different credentials")
    return profiles[0]


def _parameters(query: str) -> Sequence[tuple[str, str]]:
    """The parameters of a query, decoded; Forbidden for unknown and repeated ones, and for another encoding."""
    found: dict[str, str] = {}
    for pair in query.split("&") if query else ():
        name, _, raw = pair.partition("=")
        try:
            value = unquote(raw, errors="strict")
        except UnicodeDecodeError:
            raise refusal(f"the percent-encoding of its parameter {_quoted(pair)} is not UTF-8") from None
        if quote(value, safe="") != raw:
            raise refusal(f"its parameter {_quoted(pair)} is not in the normal percent-encoding")
        if name in found:
            raise refusal(f"its parameter {_quoted(name)} is repeated")
        pattern = _PARAMETER_VALUES.get(name)
        if pattern and not pattern.fullmatch(value):
            raise refusal(f"its parameter {name} has the value {_quoted(value)}")
        found[name] = value
    return tuple(found.items())


def _encoded(parameters: Iterable[tuple[str, str]]) -> Iterable[tuple[str, str]]:
    return ((name, quote(value, safe="")) for name, value in parameters)


def _check_object_query(method: str, parameters: Sequence[tuple[str, str]]) -> None:
    names = {name for name, _ in parameters} - {"x-id"}
    allowed = _OBJECT_QUERIES.get(method)
    if allowed is None:
        raise refusal(f"its method {_quoted(method)} is not one of {', '.join(_OBJECT_QUERIES)}")
    if names not in allowed:
        texts = ", ".join(map(_quoted, sorted(names))) or "no parameters"
        raise refusal(f"{method} of an object is not signed with {texts}")


def _listed_prefix(parameters: Sequence[tuple[str, str]]) -> str:
    names = {name for name, _ in parameters} - {"x-id"}
    if not names >= _LIST_NEEDS or not names <= _LIST_NEEDS | _LIST_MAY:
        texts = ", ".join(map(_quoted, sorted(names))) or "no parameters"
        raise refusal(f"GET of the bucket is signed only as a list with list-type=2 and a prefix, not with {texts}")
    return dict(parameters)["prefix"]


def _check_delete_list(method: str, parameters: Sequence[tuple[str, str]]) -> None:
    names = {name for name, _ in parameters} - {"x-id"}
    if method != "POST" or names != {"delete"}:
        texts = ", ".join(map(_quoted, sorted(names))) or "no parameters"
        raise refusal(f"{_quoted(method)} of the bucket with {texts} reaches more than one table")


def _body(request: StorageRequest) -> str:
    if request.body is None:
        raise refusal("POST ?delete is signed only if the body comes along, because it names the objects")
    return request.body


def _signed_headers(given: Mapping[str, Sequence[str]], uri: _Uri) -> dict[str, str]:
    """The headers to sign, by name in lower case; Forbidden for unknown and repeated ones."""
    if len(given) > HEADERS_MAX:
        raise refusal(f"it has more than {HEADERS_MAX} headers")
    headers: dict[str, str] = {}
    seen: set[str] = set()
    for name, values in given.items():
        lower = name.lower()
        if lower in seen:
            raise refusal(f"its header {_quoted(lower)} is repeated")
        seen.add(lower)
        if not all(map(_VALUE.fullmatch, values)):
            raise refusal(f"its header {_quoted(lower)} contains a character that is not printable ASCII")
        if lower in _UNSIGNED:
            continue
        if len(values) != 1:
            raise refusal(f"its header {_quoted(lower)} has {len(values)} values")
        value = values[0]
        if lower == "host":
            if value.removesuffix(_DEFAULT_PORTS[uri.scheme]) != uri.host:
                raise refusal(f"its header host {_quoted(value)} is not the host of its URI")
            continue
        if lower not in _SIGNED:
            raise refusal(f"its header {_quoted(lower)} is not among those that are signed")
        headers[lower] = value
    return headers


def _payload_hash(headers: Mapping[str, str]) -> str:
    """The hash of the body that the client declares, or the text for a body that is not hashed."""
    declared = headers.get("x-amz-content-sha256")
    if declared is None:
        return _UNSIGNED_TRAILER if "x-amz-trailer" in headers else UNSIGNED_PAYLOAD
    if declared not in {UNSIGNED_PAYLOAD, _UNSIGNED_TRAILER} and not _HASH.fullmatch(declared):
        raise refusal(f"its header x-amz-content-sha256 has the value {_quoted(declared)}")
    return declared
