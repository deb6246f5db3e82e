"""Session policies of S3: exactly the locations of a table, or none."""

import json

import pytest

from sandur.catalog.access_policies import S3_POLICY_CHARS_MAX, access_scope, s3_policy
from sandur.catalog.storage_profiles import AccessScope
from sandur.errors import Unsupported


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
