"""Policies that confine a storage credential to the locations of one table."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from sandur.catalog.credentials.profiles import AccessScope
from sandur.catalog.locations import is_within, normalize_location
from sandur.errors import Unsupported

S3_POLICY_CHARS_MAX: Final = 2_048
"""The longest session policy that STS accepts."""

# `*` and `?` match other keys, and `$` begins a variable. Services differ in how they escape them, so none may occur.
_S3_SYNTAX: Final = frozenset("*?$")
_S3_READS: Final = ("s3:GetObject",)
_S3_WRITES: Final = (
    "s3:PutObject",
    "s3:DeleteObject",
    "s3:AbortMultipartUpload",
    "s3:ListMultipartUploadParts",
)

Statement = Mapping[str, object]


class Folder(NamedTuple):
    """A folder in a bucket; the prefix has no slash at either end."""

    bucket: str
    prefix: str


def access_scope(locations: Iterable[str], *, writes: bool) -> AccessScope:
    """The scope of these locations, without those that lie within another one."""
    outer: list[str] = []
    for location in sorted(set(map(normalize_location, locations)), key=lambda text: (len(text), text)):
        if not any(is_within(location, other) for other in outer):
            outer.append(location)
    return AccessScope(locations=tuple(sorted(outer)), writes=writes)


def folder_of(location: str) -> Folder:
    """The folder that a location names. Raises Unsupported for a whole bucket, which no credential may open."""
    bucket, _, prefix = normalize_location(location).partition("://")[2].partition("/")
    if not bucket or not prefix:
        raise _not_confined(location, "it is a whole bucket")
    return Folder(bucket, prefix)


def s3_policy(scope: AccessScope, *, partition: str = "aws", with_keys: bool = True) -> str:
    """The session policy of STS for a scope, as JSON in ASCII.

    `with_keys` allows the keys of encrypted objects to be used, but only through S3, and so only for objects that the
    rest of the policy allows. Raises Unsupported if no policy confines a credential to these locations.
    """
    folders = [_s3_folder(location) for location in scope.locations]
    if not folders:
        raise Unsupported("No credential without a location: an empty policy would open the whole role")
    keys = [_key_statement(partition, writes=scope.writes)] if with_keys else []
    objects = [*_object_statements(folders, partition, writes=scope.writes), *_list_statements(folders, partition)]
    conveniences = [*_folder_key_statement(folders, partition), *_region_statement(folders, partition)]
    policy = _encoded((*objects, *conveniences, *keys))
    if len(policy) > S3_POLICY_CHARS_MAX:
        policy = _encoded((*objects, *keys))
    if len(policy) <= S3_POLICY_CHARS_MAX:
        return policy
    raise _not_confined(
        ", ".join(scope.locations)[:200],
        f"its policy has {len(policy)} characters, and STS accepts {S3_POLICY_CHARS_MAX}; use shorter locations",
    )


def _encoded(statements: Sequence[Statement]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))


def _s3_folder(location: str) -> Folder:
    if not location.startswith("s3://"):
        raise _not_confined(location, "it is not in S3")
    folder = folder_of(location)
    if found := _S3_SYNTAX.intersection(location):
        raise _not_confined(location, f"it contains {' '.join(sorted(found))}, which has a meaning in policies")
    if any(part in {"", ".", ".."} for part in folder.prefix.split("/")):
        raise _not_confined(location, "it contains an empty segment, . or ..")
    return folder


def _object_statements(folders: Sequence[Folder], partition: str, *, writes: bool) -> Sequence[Statement]:
    actions = (*_S3_READS, *_S3_WRITES) if writes else _S3_READS
    resources = [f"{_bucket_arn(folder.bucket, partition)}/{folder.prefix}/*" for folder in folders]
    return [_allow(actions, resources)]


def _list_statements(folders: Sequence[Folder], partition: str) -> Sequence[Statement]:
    """Lists below the prefixes. The prefix without a slash is not allowed: it would list its neighbours."""
    return [
        {
            **_allow(["s3:ListBucket"], [_bucket_arn(bucket, partition)]),
            "Condition": {
                "StringLike": {
                    "s3:prefix": [f"{folder.prefix}/*" for folder in folders if folder.bucket == bucket],
                }
            },
        }
        for bucket in _buckets(folders)
    ]


def _folder_key_statement(folders: Sequence[Folder], partition: str) -> Sequence[Statement]:
    """Reads of the key that is the folder itself: Hadoop looks for a file there before it lists the folder."""
    return [_allow(_S3_READS, [f"{_bucket_arn(folder.bucket, partition)}/{folder.prefix}" for folder in folders])]


def _region_statement(folders: Sequence[Folder], partition: str) -> Sequence[Statement]:
    return [_allow(["s3:GetBucketLocation"], [_bucket_arn(bucket, partition) for bucket in _buckets(folders)])]


def _key_statement(partition: str, *, writes: bool) -> Statement:
    suffix = ".cn" if partition == "aws-cn" else ""
    actions = ["kms:Decrypt", "kms:GenerateDataKey"] if writes else ["kms:Decrypt"]
    condition = {"StringLike": {"kms:ViaService": f"s3.*.amazonaws.com{suffix}"}}
    return {**_allow(actions, ["*"]), "Condition": condition}


def _allow(actions: Sequence[str], resources: Sequence[str]) -> Statement:
    return {"Effect": "Allow", "Action": list(actions), "Resource": list(resources)}


def _buckets(folders: Sequence[Folder]) -> Sequence[str]:
    return sorted({folder.bucket for folder in folders})


def _bucket_arn(bucket: str, partition: str) -> str:
    return f"arn:{partition}:s3:::{bucket}"


def _not_confined(location: str, reason: str) -> Unsupported:
    return Unsupported(f"No credential for {location}: it cannot be confined to that location: {reason}")
