"""What is finished behind the answer to a commit: a crash here leaves what the next one repairs."""

import contextlib
from typing import TypeVar

from sandur.errors import SandurError, SwapLost
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.claims import ClaimLost, KeyClaim
from sandur.operations.documents import Document, Family
from sandur.operations.lake import Lake
from sandur.operations.names import Found, activated
from sandur.operations.together import together

M = TypeVar("M", TableMetadata, ViewMetadata)

_DELETES_OLD_FILES = "write.metadata.delete-after-commit.enabled"


async def finish_commit(
    lake: Lake, family: Family[M], found: Found, before: Document[M], after: Document[M], claim: KeyClaim
) -> None:
    """C6: our own receipt, the claim, the name of a table that is committed to for the first time, and old files."""
    head = found.pointer.value.head
    if head is None:
        return
    work = [lake.receipts.ensure(found.pointer.value.table_uuid, head)]
    if claim.is_keyed:
        work.append(_finish_claim(claim, after.location))
    if found.name.value.state == "new":
        work.append(activate(lake, found))
    if after.metadata.properties.get(_DELETES_OLD_FILES, "").lower() == "true":
        work.append(_delete_old_files(lake, family, before, after))
    await together(work)


async def _finish_claim(claim: KeyClaim, location: str) -> None:
    with contextlib.suppress(ClaimLost):  # Taken over: whoever has it finds the commit by C5.
        await claim.done(location=location)


async def activate(lake: Lake, found: Found) -> None:
    """A `new` name whose pointer is bound has nothing left to confirm. Whoever changed it meanwhile is right."""
    if found.name.value.state == "new":
        with contextlib.suppress(SwapLost):
            await lake.name(found.identifier).swap(activated(found.name.value), expected=found.name.version)


async def _delete_old_files(lake: Lake, family: Family[M], before: Document[M], after: Document[M]) -> None:
    """Files that fell out of the log, for a table that asks for it; their receipts exist, or we had not come here."""
    for location in sorted(set(family.log(before.metadata)) - set(family.log(after.metadata)) - {after.location}):
        with contextlib.suppress(SandurError):
            await lake.locations.remove(location)
