"""What a request that was carried out before is answered with: its document, or what became of it."""

from typing import TypeVar

from sandur.catalog.records import Pointer
from sandur.errors import NotFound
from sandur.iceberg.table_metadata import TableMetadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations import transactions_met
from sandur.operations.documents import Document, Family, load_document
from sandur.operations.lake import Lake
from sandur.storage.cell import Held

M = TypeVar("M", TableMetadata, ViewMetadata)


async def answered_document(lake: Lake, family: Family[M], location: str, uuid: str) -> Document[M]:
    """The document that was answered before.

    A table may ask that its old files be deleted. An answer whose file is gone is then what is current: a request that
    was carried out is never told that something is missing while its table is there.
    """
    try:
        return await load_document(lake, family, location)
    except NotFound:
        pointer = await lake.pointer(uuid).read()
        if pointer and (document := await document_of(lake, family, pointer)):
            return document
        raise


async def document_of(lake: Lake, family: Family[M], pointer: Held[Pointer]) -> Document[M] | None:
    """The document a pointer stands for; None when it is of another kind, or its file is gone, as after a purge."""
    head = (await transactions_met.effective(lake, pointer)).value.head
    if head is None or pointer.value.kind != family.kind:
        return None
    try:
        return await load_document(lake, family, head.metadata_location)
    except NotFound:
        return None
