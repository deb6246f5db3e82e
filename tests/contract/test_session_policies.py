"""Session policies on a real S3: a credential opens its own table and nothing beside, above or elsewhere."""

import datetime as dt
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import obstore
import pytest
from msgspec.structs import replace
from obstore.exceptions import BaseError
from obstore.store import S3Store

from sandur.catalog.credentials.access_policies import access_scope
from sandur.catalog.credentials.profiles import StorageCredential, StorageProfile
from sandur.clock import SystemClock
from sandur.errors import ServiceRefused
from sandur.settings import Settings
from sandur.storage.credentials.s3 import issue, own_profile
from tests.servers.seaweedfs import BUCKET

if TYPE_CHECKING:
    from obstore.store import S3Config

NAMES: Final = ("plain", "mit Leerzeichen", "ünïcode-漢", "a+b=c", "100%25")
PART_BYTES: Final = 5 << 20


class Bucket(NamedTuple):
    """The bucket as the administrator sees it, with files in and around the folder of one table."""

    admin: S3Store
    profile: StorageProfile
    folder: str

    async def credential(self, *, writes: bool) -> StorageCredential:
        scope = access_scope([f"s3://{BUCKET}/{self.folder}"], writes=writes)
        return await issue(self.profile, scope, SystemClock())


def store_with(profile: StorageProfile, keys: StorageProfile | StorageCredential) -> S3Store:
    config: S3Config = {
        "endpoint": profile.endpoint,
        "region": profile.region,
        "access_key_id": keys.access_key_id,
        "secret_access_key": keys.secret_access_key,
    }
    if keys.session_token:
        config["session_token"] = keys.session_token
    return S3Store(
        BUCKET,
        config=config,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": dt.timedelta(seconds=30)},
    )


@pytest.fixture(params=NAMES)
def bucket(request: pytest.FixtureRequest, seaweedfs_sts: Settings) -> Bucket:
    profile = own_profile(seaweedfs_sts.s3)
    folder = f"policies/{request.param}"
    admin = store_with(profile, profile)
    for key in ("/data/one", "-x/one", "x", "2/one"):
        obstore.put(admin, f"{folder}{key}", b"content")
    obstore.put(admin, "policies/neighbour/one", b"content")
    return Bucket(admin, profile, folder)


def is_denied(call: Callable[[], object]) -> bool:
    try:
        call()
    except (BaseError, PermissionError) as error:
        text = str(error)
        assert "AccessDenied" in text or "403" in text or "Access Denied" in text, text
        return True
    return False


def listed(store: S3Store, prefix: str | None) -> list[str]:
    return [entry["path"] for batch in obstore.list(store, prefix) for entry in batch]


async def test_a_writer_reads_lists_and_writes_its_own_table(bucket: Bucket) -> None:
    store = store_with(bucket.profile, await bucket.credential(writes=True))
    own = bucket.folder

    obstore.put(store, f"{own}/data/two", b"small")
    obstore.put(store, f"{own}/data/large", b"x" * (PART_BYTES + 1), use_multipart=True, chunk_size=PART_BYTES)

    assert bytes(obstore.get(store, f"{own}/data/one").bytes()) == b"content"
    assert sorted(listed(store, f"{own}/")) == [f"{own}/data/{name}" for name in ("large", "one", "two")]
    obstore.copy(store, f"{own}/data/one", f"{own}/data/copy")
    obstore.delete(store, [f"{own}/data/{name}" for name in ("copy", "large", "two")])
    assert listed(store, f"{own}/") == [f"{own}/data/one"]
    # Hadoop looks for a file where the folder is, and must not find a refusal.
    with pytest.raises(FileNotFoundError):
        obstore.head(store, own)


@pytest.mark.parametrize("writes", [True, False])
async def test_nothing_beside_above_or_elsewhere_is_open(bucket: Bucket, *, writes: bool) -> None:
    store = store_with(bucket.profile, await bucket.credential(writes=writes))
    own = bucket.folder

    for other in (f"{own}-x/one", f"{own}x", f"{own}2/one", "policies/neighbour/one"):
        assert is_denied(partial(obstore.get, store, other))
        assert is_denied(partial(obstore.put, store, other, b"stolen"))
        assert is_denied(partial(obstore.delete, store, other))
        assert is_denied(partial(obstore.copy, store, other, f"{own}/data/stolen"))
        assert is_denied(partial(obstore.copy, store, f"{own}/data/one", other))
    for prefix in (f"{own}-x/", "policies/", "policies/neighbour/", None):
        assert is_denied(partial(listed, store, prefix))
    assert bytes(obstore.get(bucket.admin, "policies/neighbour/one").bytes()) == b"content"


async def test_a_reader_changes_nothing(bucket: Bucket) -> None:
    store = store_with(bucket.profile, await bucket.credential(writes=False))
    own = f"{bucket.folder}/data/one"

    assert bytes(obstore.get(store, own).bytes()) == b"content"
    assert is_denied(lambda: obstore.put(store, own, b"changed"))
    assert is_denied(lambda: obstore.put(store, f"{own}2", b"x" * (PART_BYTES + 1), use_multipart=True))
    assert is_denied(lambda: obstore.delete(store, own))
    assert bytes(obstore.get(bucket.admin, own).bytes()) == b"content"


async def test_keys_that_sts_does_not_know_are_refused(seaweedfs_sts: Settings) -> None:
    stranger = replace(own_profile(seaweedfs_sts.s3), access_key_id="stranger")

    with pytest.raises(ServiceRefused, match="STS at"):
        await issue(stranger, access_scope([f"s3://{BUCKET}/t"], writes=False), SystemClock())
