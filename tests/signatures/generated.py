"""Generated requests to S3: valid ones of each kind, and the same with mutations that try to leave the table."""

import random  # noqa: TID251 - seeded
from collections.abc import Callable, Sequence
from typing import Final
from urllib.parse import quote
from xml.sax.saxutils import escape

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.credentials.signed_requests import Home, StorageRequest

BUCKET: Final = "sandur"
HOME: Final = "lake/home"
DATA_HOME: Final = "lake/data of home"
NEIGHBOUR: Final = "lake/neighbour"
TWIN: Final = "lake/home-x"
REGION: Final = "us-east-1"
ENDPOINT: Final = "http://127.0.0.1:8333"

Mutation = Callable[[random.Random, StorageRequest], StorageRequest]

_SEGMENTS: Final = (
    *(
        "data",
        "metadata",
        "a b",
        "ü",
        "p=1",
        "p=a%2Fb",
        "x+y",
        "~",
        "k'v",
        "00000-1.parquet",
        "&",
        "#",
        "?",
        "日本",
        "%",
    ),
    *("..", ".", "", "\\", "\n", "..%2f..", "%2e%2e", "...", "home-x", "neighbour"),
)
_FOLDERS: Final = (HOME, HOME, HOME, DATA_HOME, NEIGHBOUR, TWIN, "", "lake", f"{HOME}/../neighbour", HOME.upper())
_PARAMETERS: Final = (
    *("versionId=1", "acl", "tagging", "uploads", "uploadId=u", "partNumber=1", "partNumber=0", "x-id=GetObject"),
    *("prefix=lake%2Fneighbour%2F", "prefix=", "prefix=lake%2Fhome%2F", "list-type=1", "list-type=2", "delete"),
    *("response-content-type=a", "X-Amz-Signature=1", "location", "policy", "delimiter=%2F", "max-keys=2", "marker=a"),
    *("start-after=lake%2Fneighbour", "continuation-token=..%2Fneighbour", "fetch-owner=true", "encoding-type=url"),
    *("select&select-type=2", "torrent", "attributes", "legal-hold", "renameObject", "=", "%70refix=lake%2Fneighbour"),
)
_HEADERS: Final = (
    *("x-amz-copy-source", "X-Amz-Copy-Source-Range", "x-amz-acl", "x-amz-grant-read", "x-amz-security-token"),
    *("x-amz-website-redirect-location", "x-amz-object-lock-mode", "x-amz-tagging", "x-amz-storage-class"),
    *("x-amz-rename-source", "x-amz-meta-a", "authorization", "x-http-method-override", "host", "x-forwarded-host"),
    *("x-amz-bypass-governance-retention", "x-amz-mfa", "x-amz-write-offset-bytes", "x-amz-content-sha256"),
    *("content-type", "Content-MD5", "range", "Range", "user-agent", "amz-sdk-request", "x-amz-date", "if-none-match"),
)
_VALUES: Final = (
    f"/{BUCKET}/{NEIGHBOUR}/secret",
    "UNSIGNED-PAYLOAD",
    "public-read",
    "",
    "bytes=0-1",
    "a\nb",
    "evil.host",
)
_ENCODINGS: Final = (("%2F", "/"), ("/", "%2F"), ("%", "%25"), ("%20", "+"), ("%2B", "+"), ("e", "%65"), ("%3D", "="))
_XML: Final = (
    *("<VersionId>1</VersionId>", "<!-- c -->", "<![CDATA[lake/neighbour/secret]]>", "&unknown;", "&#46;", "&#x2e;"),
    *(f"</Key><Key>{NEIGHBOUR}/secret", f"<Key>{NEIGHBOUR}/secret</Key>", "../", '<!DOCTYPE a [<!ENTITY k "v">]>'),
    *("</Key></Object><Object><Key>lake/neighbour/secret", "\r\n", " ", "<Quiet>true</Quiet>", "&#0;", "&#xD800;"),
)


def home_profile(endpoint: str = ENDPOINT, *, path_style: bool = True) -> StorageProfile:
    return StorageProfile(
        cloud="s3",
        access="sign",
        endpoint=endpoint,
        region=REGION,
        path_style=path_style,
        access_key_id="sandur",
        secret_access_key="sandur-secret",  # noqa: S106 - a key of the test server
    )


def homes(profile: StorageProfile) -> Sequence[Home]:
    return [Home(profile, BUCKET, f"{folder}/") for folder in (HOME, DATA_HOME)]


def object_uri(key: str, *, endpoint: str = ENDPOINT, query: str = "") -> str:
    return f"{endpoint}/{BUCKET}/{quote(key, safe='/~')}{'?' if query else ''}{query}"


def delete_body(*keys: str) -> str:
    objects = "".join(f"<Object><Key>{escape(key)}</Key></Object>" for key in keys)
    return f'<Delete xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{objects}<Quiet>true</Quiet></Delete>'


def valid_request(chance: random.Random, endpoint: str = ENDPOINT) -> StorageRequest:
    """One of the requests that real clients send, for an object of the table."""
    folder = chance.choice((HOME, DATA_HOME))
    names = [name for name in _SEGMENTS[:12] if name]
    key = "/".join((folder, *chance.choices(names, k=chance.randint(1, 3))))
    prefix = quote(chance.choice((f"{folder}/", f"{key}/", key)), safe="")
    kinds: Sequence[tuple[str, str, str | None]] = (
        ("GET", object_uri(key, endpoint=endpoint), None),
        ("GET", object_uri(key, endpoint=endpoint, query="x-id=GetObject"), None),
        ("HEAD", object_uri(key, endpoint=endpoint), None),
        ("PUT", object_uri(key, endpoint=endpoint), None),
        ("PUT", object_uri(key, endpoint=endpoint, query="partNumber=3&uploadId=abc"), None),
        ("POST", object_uri(key, endpoint=endpoint, query="uploads"), None),
        ("POST", object_uri(key, endpoint=endpoint, query="uploadId=abc"), None),
        ("DELETE", object_uri(key, endpoint=endpoint), None),
        ("DELETE", object_uri(key, endpoint=endpoint, query="uploadId=abc"), None),
        ("GET", f"{endpoint}/{BUCKET}?list-type=2&prefix={prefix}&delimiter=%2F&encoding-type=url", None),
        ("GET", f"{endpoint}/{BUCKET}?max-keys=2&list-type=2&prefix={prefix}", None),
        ("POST", f"{endpoint}/{BUCKET}?delete", delete_body(key, f"{folder}/other")),
    )
    method, uri, body = chance.choice(kinds)
    headers = {"User-Agent": ["test"], "amz-sdk-request": ["attempt=1"]}
    return StorageRequest(method, uri, REGION, headers, body)


def attack(chance: random.Random, endpoint: str = ENDPOINT) -> StorageRequest:
    """A valid request with up to three mutations."""
    request = valid_request(chance, endpoint)
    for mutate in chance.choices(_MUTATIONS, k=chance.randint(0, 3)):
        request = mutate(chance, request)
    return request


def _path(chance: random.Random, request: StorageRequest) -> StorageRequest:
    key = "/".join((chance.choice(_FOLDERS), *chance.choices(_SEGMENTS, k=chance.randint(0, 3))))
    endpoint = "/".join(request.uri.split("/", 3)[:3])
    return request._replace(uri=object_uri(key, endpoint=endpoint, query=request.uri.partition("?")[2]))


def _encoding(chance: random.Random, request: StorageRequest) -> StorageRequest:
    old, new = chance.choice(_ENCODINGS)
    beginning, _, rest = request.uri.partition(f"/{BUCKET}")
    return request._replace(uri=f"{beginning}/{BUCKET}{rest.replace(old, new, chance.randint(1, 3))}")


def _splice(chance: random.Random, request: StorageRequest) -> StorageRequest:
    """Put text somewhere into the URI."""
    text = chance.choice(("..", "/", "//", "%2F", "%00", "%0a", "\t", "#", "?", "&", "@", ":", "\\", "%FF", "ü", "."))
    place = chance.randint(7, len(request.uri))
    return request._replace(uri=request.uri[:place] + text + request.uri[place:])


def _parameter(chance: random.Random, request: StorageRequest) -> StorageRequest:
    sign = "&" if "?" in request.uri else "?"
    return request._replace(uri=f"{request.uri}{sign}{chance.choice(_PARAMETERS)}")


def _header(chance: random.Random, request: StorageRequest) -> StorageRequest:
    values = chance.choices(_VALUES, k=chance.choice((1, 1, 1, 2, 0)))
    return request._replace(headers={**request.headers, chance.choice(_HEADERS): values})


def _method(chance: random.Random, request: StorageRequest) -> StorageRequest:
    return request._replace(method=chance.choice(("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "get")))


def _host(chance: random.Random, request: StorageRequest) -> StorageRequest:
    scheme, _, rest = request.uri.partition("://")
    host, slash, path = rest.partition("/")
    other = chance.choice(
        (f"{BUCKET}.{host}", f"other.{host}", f"{host}.evil", f"a@{host}", host.upper(), "evil", f"{host}:80")
    )
    return request._replace(uri=f"{chance.choice((scheme, 'https', 'HTTP', 's3'))}://{other}{slash}{path}")


def _bucket(chance: random.Random, request: StorageRequest) -> StorageRequest:
    other = chance.choice(("other", f"{BUCKET}%2Flake", "", f"./{BUCKET}", f"x/../{BUCKET}"))
    return request._replace(uri=request.uri.replace(f"/{BUCKET}", f"/{other}", 1))


def _body(chance: random.Random, request: StorageRequest) -> StorageRequest:
    body = request.body or delete_body(f"{HOME}/a")
    place = chance.randint(0, len(body))
    changed = (
        body[:place] + chance.choice(_XML) + body[place:],
        body.replace("</Key>", chance.choice(_XML) + "</Key>", 1),
        body.replace("</Key>", "</Key>" + chance.choice(_XML), 1),
        body.replace(HOME, chance.choice((NEIGHBOUR, TWIN, f"{HOME}/..", "")), 1),
        delete_body(f"{HOME}/a", f"{chance.choice(_FOLDERS)}/{chance.choice(_SEGMENTS)}"),
        delete_body(),
        "",
    )
    return request._replace(body=chance.choice((*changed, None)))


def _region(chance: random.Random, request: StorageRequest) -> StorageRequest:
    return request._replace(region=chance.choice(("eu-west-1", "", REGION.upper())))


_MUTATIONS: Final[Sequence[Mutation]] = (
    *(_path, _path, _encoding, _encoding, _splice, _splice, _parameter, _parameter, _header, _header, _body, _body),
    *(_method, _host, _bucket, _region),
)
