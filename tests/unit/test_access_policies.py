"""Session policies of S3: exactly the locations of a table, or none."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandur.catalog.credentials.access_policies import S3_POLICY_CHARS_MAX, access_scope, s3_policy
from sandur.catalog.credentials.profiles import AccessScope
from sandur.errors import Unsupported
from tests.unit.iam import allows


def test_a_scope_is_normalized_and_has_no_location_within_another() -> None:
    scope = access_scope(["s3a://b/t/data/", "s3://b/t", "s3://b/t-x"], writes=False)

    assert scope.locations == ("s3://b/t", "s3://b/t-x")


def test_the_partition_of_the_role_is_that_of_the_resources() -> None:
    policy = s3_policy(access_scope(["s3://b/t"], writes=True), partition="aws-cn")

    assert "arn:aws-cn:s3:::b/t/*" in policy
    assert "arn:aws:" not in policy
    assert "s3.*.amazonaws.com.cn" in policy


def test_a_policy_without_locations_is_never_made() -> None:
    with pytest.raises(Unsupported, match="empty policy"):
        s3_policy(AccessScope(locations=(), writes=False))


@pytest.mark.parametrize(
    "location",
    ["s3://b", "s3://b/", "s3://b/*", "s3://b/t?", "s3://b/${aws:username}", "gs://b/t", "s3://*/t", "s3://b/a//c"],
)
def test_a_location_that_no_policy_confines_is_refused(location: str) -> None:
    with pytest.raises(Unsupported, match="cannot be confined"):
        s3_policy(access_scope([location], writes=False))


def test_a_policy_that_is_too_long_gives_up_conveniences_first_and_is_then_refused() -> None:
    long = access_scope([f"s3://b/{'p' * 400}-{number}" for number in range(1)], writes=True)
    longer = access_scope([f"s3://b/{'p' * 340}-{number}" for number in range(2)], writes=True)
    longest = access_scope([f"s3://b/{'p' * 480}-{number}" for number in range(4)], writes=True)

    assert "GetBucketLocation" in s3_policy(long)
    assert "GetBucketLocation" not in s3_policy(longer)
    assert all(len(s3_policy(scope)) <= S3_POLICY_CHARS_MAX for scope in (long, longer))
    assert json.loads(s3_policy(longer))["Statement"][0]["Resource"] == [
        f"arn:aws:s3:::{location.removeprefix('s3://')}/*" for location in longer.locations
    ]
    with pytest.raises(Unsupported, match="characters, and STS accepts 2048"):
        s3_policy(longest)


# Few letters, so that prefixes collide, and everything that policies, URLs, JSON or clients give a meaning.
SEGMENTS = st.text(st.sampled_from("ab-.*?$\"'\\{}%#é漢\u202e \x00🧊"), min_size=0, max_size=6)
PATHS = st.lists(SEGMENTS, min_size=1, max_size=3).map("/".join)
LONG_PATHS = st.integers(200, 1_500).map(lambda length: "p" * length)
FORBIDDEN = ("s3:PutObjectAcl", "s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucket", "s3:ListAllMyBuckets")


@settings(max_examples=150, deadline=None)
@given(
    prefixes=st.lists(PATHS | LONG_PATHS, min_size=1, max_size=3),
    keys=st.lists(PATHS, min_size=3, max_size=8),
    writes=st.booleans(),
)
def test_a_policy_allows_the_keys_below_its_locations_and_nothing_else(
    *, prefixes: list[str], keys: list[str], writes: bool
) -> None:
    scope = access_scope([f"s3://bucket/{prefix}" for prefix in prefixes], writes=writes)
    try:
        policy = s3_policy(scope)
    except Unsupported:
        return
    inside = [location.removeprefix("s3://bucket/") for location in scope.locations]
    # What the locations would match if a character in them had a meaning.
    matched = [one.replace(syntax, "ab") for one in inside for syntax in "*?$"]
    ends = ("", "/", "/x", "/x/y", "x", "-x", "/../x", "*")
    tried = [*keys, *(f"{one}{end}" for one in (*inside, *matched) for end in ends)]

    assert policy.isascii()
    assert len(policy) <= S3_POLICY_CHARS_MAX
    for key in tried:
        is_below = any(key.startswith(f"{one}/") for one in inside)
        resource = f"arn:aws:s3:::bucket/{key}"
        assert allows(policy, "s3:GetObject", resource) <= (is_below or key in inside)
        assert allows(policy, "s3:GetObject", resource) >= is_below
        for action in ("s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload", "s3:ListMultipartUploadParts"):
            assert allows(policy, action, resource) == (is_below and writes)
        assert allows(policy, "s3:ListBucket", "arn:aws:s3:::bucket", {"s3:prefix": key}) == is_below
        assert not allows(policy, "s3:GetObject", f"arn:aws:s3:::other/{key}")
        assert not any(allows(policy, action, resource) for action in FORBIDDEN)
    assert not allows(policy, "s3:ListBucket", "arn:aws:s3:::bucket")
    assert not any(allows(policy, action, "arn:aws:s3:::bucket") for action in (*FORBIDDEN, "s3:GetObject"))


@settings(max_examples=150, deadline=None)
@given(path=PATHS)
def test_a_plain_location_always_gets_a_policy_and_one_with_syntax_never(path: str) -> None:
    scope = access_scope([f"s3://bucket/{path}"], writes=True)
    is_plain = all(part not in {"", ".", ".."} for part in path.rstrip("/").split("/"))

    if set(path) & set("*?$") or not is_plain:
        with pytest.raises(Unsupported):
            s3_policy(scope)
    else:
        assert json.loads(s3_policy(scope))["Statement"]


def test_the_evaluator_knows_what_a_careless_policy_would_allow() -> None:
    careless = json.dumps(
        {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "s3:Get*", "Resource": ["arn:aws:s3:::b/t*/*", "arn:?"]}],
        }
    )
    escaped = careless.replace("t*/*", "t${*}/*")

    assert allows(careless, "s3:GetObject", "arn:aws:s3:::b/t-x/y")
    assert not allows(careless, "s3:GetObject", "arn:aws:s3:::b/u/y")
    assert not allows(careless, "s3:PutObject", "arn:aws:s3:::b/t/y")
    assert allows(escaped, "s3:GetObject", "arn:aws:s3:::b/t*/y")
    assert not allows(escaped, "s3:GetObject", "arn:aws:s3:::b/t-x/y")
