"""Access boundaries of Google and directories of Azure: they confine a credential, or are refused with the reason."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandur.catalog.credentials.access_boundaries import BOUNDARY_CHARS_MAX, Directory, access_boundary, azure_directory
from sandur.catalog.credentials.profiles import AccessScope
from sandur.errors import Invalid, Unsupported
from tests.servers.access_boundary import NotAnExpression, Request, evaluate, is_allowed, parse_boundary

HOST = "acct.dfs.core.windows.net"


def scope(*locations: str, writes: bool = False) -> AccessScope:
    return AccessScope(locations=locations, writes=writes)


def opens(boundary: str, verb: str, key: str, *, bucket: str = "lake") -> bool:
    name = f"projects/_/buckets/{bucket}"
    request = (
        Request("storage.objects.list", name, key)
        if verb == "list"
        else Request(f"storage.objects.{verb}", f"{name}/objects/{key}")
    )
    return is_allowed(parse_boundary(boundary), request)


@pytest.mark.parametrize("verb", ["get", "list", "create", "delete"])
@pytest.mark.parametrize(
    ("key", "is_inside"),
    [
        ("sales/orders/data/1.parquet", True),
        ("sales/orders/", True),
        ("sales/orders", False),
        ("sales/orders-x/1.parquet", False),
        ("sales/returns/1.parquet", False),
        ("sales/", False),
        ("", False),
        ("x/sales/orders/1.parquet", False),
    ],
)
def test_a_writer_reaches_its_folder_and_nothing_beside_it(verb: str, key: str, *, is_inside: bool) -> None:
    boundary = access_boundary(scope("gs://lake/sales/orders", writes=True))

    assert opens(boundary, verb, key) == is_inside
    assert not opens(boundary, verb, key, bucket="lake2")


def test_a_reader_cannot_write() -> None:
    boundary = access_boundary(scope("gs://lake/sales/orders"))

    found = {verb: opens(boundary, verb, "sales/orders/x") for verb in ("get", "list", "create", "delete", "update")}

    assert found == {"get": True, "list": True, "create": False, "delete": False, "update": False}


def test_one_boundary_is_for_all_locations_of_a_table_without_those_inside_another() -> None:
    locations = ("gs://lake/t", "gs://lake/t/data", "gs://other-bucket/t-data", "gs://lake/t/")

    boundary = access_boundary(scope(*locations))

    assert len(parse_boundary(boundary)) == 2
    assert opens(boundary, "get", "t/data/x")
    assert opens(boundary, "get", "t-data/x", bucket="other-bucket")
    assert not opens(boundary, "get", "t-data/x")
    assert not opens(boundary, "get", "t/x", bucket="other-bucket")


@pytest.mark.parametrize(
    ("locations", "reason"),
    [
        (("gs://lake/o'brien",), "quote"),
        (('gs://lake/a"b',), "quote"),
        (("gs://lake/a`b",), "quote"),
        (("gs://lake/a\\",), "backslash"),
        (("gs://lake/a\nb",), "control character"),
        (("gs://lake/') || true || resource.name.startsWith('",), "quote"),
        (("gs://lake",), "whole bucket"),
        (("gs://lake/",), "whole bucket"),
        (("s3://lake/t",), "not in a bucket of Google"),
        (("file:///lake/t",), "not in a bucket of Google"),
        (("gs://LAKE/t",), "not in a bucket of Google"),
        (("gs://lake/../t",), "segment"),
        (("gs://lake/%2e%2e/t",), "segment"),
        ((), "without a location"),
        (tuple(f"gs://lake/{number}" for number in range(11)), "Google allows 10"),
        ((f"gs://lake/{'x' * 1_000}",), "Google allows 2048"),
    ],
)
def test_locations_that_no_boundary_confines_are_refused_with_the_reason(
    locations: tuple[str, ...], reason: str
) -> None:
    with pytest.raises((Invalid, Unsupported), match=reason):
        access_boundary(scope(*locations))


PIECES = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        ["'", '"', "\\", "\\'", "\\x27", "\\u0027", "') || true", "/", "//", "..", "%27", "%2527", "*", "\u2019", "\n"]
    ),
    st.text(alphabet="abcXYZ019 -_.~+&=%@!(),|é漢😀", max_size=12),
)
PREFIXES = st.lists(PIECES, min_size=1, max_size=5).map("".join)


@given(prefix=PREFIXES, other=PREFIXES, writes=st.booleans())
@example(prefix="a') || true || resource.name.startsWith('", other="x", writes=True)
@example(prefix="a\\", other="x", writes=False)
@example(prefix="a", other="-x", writes=False)
def test_any_prefix_is_refused_or_opens_exactly_its_own_folder(prefix: str, other: str, *, writes: bool) -> None:
    try:
        boundary = access_boundary(scope(f"gs://lake/{prefix}", writes=writes))
    except (Invalid, Unsupported):
        return

    home = prefix.strip("/") + "/"
    assert len(boundary) <= BOUNDARY_CHARS_MAX
    for verb in ("get", "list"):
        assert opens(boundary, verb, home + other)
        assert opens(boundary, verb, other) == other.startswith(home)
        assert opens(boundary, verb, home[:-1] + other) == (home[:-1] + other).startswith(home)
        assert not opens(boundary, verb, home + other, bucket="lake2")
    assert opens(boundary, "create", home + other) == writes


def test_the_evaluator_of_conditions_sees_an_injection() -> None:
    """The evaluator must not be blind to what the refusals are for."""
    everything = "resource.name.startsWith('a') || true || resource.name.startsWith('')"

    assert evaluate(everything, Request("storage.objects.get", "b"))
    with pytest.raises(NotAnExpression):
        evaluate("resource.name.startsWith('a'b')", Request("storage.objects.get", "b"))


@pytest.mark.parametrize(
    ("location", "directory"),
    [
        (f"abfss://data@{HOST}/lake/sales/orders/", Directory("data", "lake/sales/orders")),
        ("abfss://data@acct.blob.core.windows.net/lake", Directory("data", "lake")),
        ("az://data/lake/a b", Directory("data", "lake/a b")),
    ],
)
def test_a_directory_of_azure_has_a_container_a_path_and_a_depth(location: str, directory: Directory) -> None:
    found = azure_directory(scope(location), "acct")

    assert found == directory
    assert found.depth == directory.path.count("/") + 1


@pytest.mark.parametrize(
    ("locations", "reason"),
    [
        (("az://data/a", "az://data/b"), "one directory"),
        ((), "without a location"),
        (("az://data",), "whole bucket"),
        (("az://data/a\nb",), "control character"),
        ((f"abfss://data@other.{HOST.partition('.')[2]}/a",), "not in the storage account acct"),
        (("s3://data/a",), "not in a container"),
        (("az://$web/a",), "not the name of a bucket"),
        (("az://da--ta/a",), "not in a container"),
        (("az://data/a/%2e%2e/b",), "segment"),
    ],
)
def test_locations_that_no_signature_confines_are_refused_with_the_reason(
    locations: tuple[str, ...], reason: str
) -> None:
    with pytest.raises((Invalid, Unsupported), match=reason):
        azure_directory(scope(*locations), "acct")


@pytest.mark.parametrize("account", ["", "ab", "Upper", "a/b", "acct\n", "x" * 25])
def test_an_account_that_cannot_exist_is_refused(account: str) -> None:
    with pytest.raises((Invalid, Unsupported), match=r"azure\.account_name"):
        azure_directory(scope("az://data/a"), account)


@given(PREFIXES)
def test_any_directory_is_refused_or_has_no_line_break_and_its_own_depth(prefix: str) -> None:
    """A line break would move text from the path into another field of what is signed."""
    try:
        directory = azure_directory(scope(f"az://data/{prefix}"), "acct")
    except (Invalid, Unsupported):
        return

    assert directory.path == prefix.strip("/")
    assert directory.path.isprintable()
    assert all(directory.path.split("/"))
    assert directory.depth == len(directory.path.split("/"))
