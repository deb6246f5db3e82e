"""The rights that the server itself needs on its store: the least that suffices, for each cloud."""

from collections.abc import Sequence

from sandur.catalog.credentials.profiles import StorageProfile
from sandur.catalog.locations import normalize_location


def server_rights(location: str, profile: StorageProfile) -> Sequence[str]:
    """What to allow the server on its store, one right a line; `profile` says what clients get there."""
    bucket, _, prefix = normalize_location(location).partition("://")[2].partition("/")
    match profile.cloud:
        case "s3":
            return _s3_rights(bucket, f"{prefix}/" if prefix else "", profile)
        case "gcs":
            return _gcs_rights(bucket, profile)
        case "azure":
            return _azure_rights(bucket.partition("@")[0], profile)


def _s3_rights(bucket: str, folder: str, profile: StorageProfile) -> Sequence[str]:
    partition = profile.role_arn.split(":")[1] if profile.role_arn.startswith("arn:") else "aws"
    objects, own = f"arn:{partition}:s3:::{bucket}/{folder}*", f"arn:{partition}:s3:::{bucket}"
    plain = "s3:GetObject, s3:PutObject, s3:DeleteObject"
    uploads = "s3:AbortMultipartUpload, s3:ListMultipartUploadParts"
    lists = f'if s3:prefix begins with "{folder}"' if folder else "with every s3:prefix"
    needs = [f"s3:ListBucket on {own} {lists}"]
    match profile.access:
        case "vend":
            return [
                f"{plain} on {objects}",
                *needs,
                f"sts:AssumeRole on {profile.role_arn}, whose trust policy names the server",
                f"the role itself: {plain}, {uploads} on {objects}; s3:ListBucket, s3:GetBucketLocation on {own}",
            ]
        case "sign" | "static":
            return [f"{plain}, {uploads} on {objects}, also for its clients", *needs]
        case "none":
            return [f"{plain} on {objects}", *needs]


def _gcs_rights(bucket: str, profile: StorageProfile) -> Sequence[str]:
    needs = [f"roles/storage.objectUser on the bucket {bucket}"]
    vends = ["the Security Token Service API (sts.googleapis.com) in its project"] if profile.access == "vend" else []
    return [*needs, *vends]


def _azure_rights(container: str, profile: StorageProfile) -> Sequence[str]:
    if profile.access == "vend":
        return ["the key of the account, which has a hierarchical namespace: only the key signs a directory"]
    return [f"Storage Blob Data Contributor on the container {container}, or a SAS token of it with racwdl"]
