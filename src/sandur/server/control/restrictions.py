"""Handlers for row filters and column masks of tables."""

import msgspec

from sandur.catalog.security.restrictions import ColumnMask, ReadRestrictions
from sandur.operations.unity import restrictions as operations
from sandur.server.context import Call
from sandur.server.http import NO_CONTENT, NO_STORE, Answer, json_answer


class SetRestrictions(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    required_row_filter: object = None
    required_column_projections: tuple[ColumnMask, ...] = ()
    exempt: tuple[str, ...] = ()


async def load_restrictions(call: Call) -> Answer:
    found, exempt = await operations.load_restrictions(call.lake, call.value("full_name"))
    fields = msgspec.json.decode(msgspec.json.encode(found), type=dict[str, msgspec.Raw])
    return json_answer(msgspec.json.encode({**fields, "exempt": exempt}), NO_STORE)


async def set_restrictions(call: Call) -> Answer:
    body = call.body(SetRestrictions, "restrictions")
    row_filter = (
        None if body.required_row_filter is None else msgspec.Raw(msgspec.json.encode(body.required_row_filter))
    )
    wanted = ReadRestrictions(
        required_row_filter=row_filter, required_column_projections=body.required_column_projections
    )
    await operations.set_restrictions(call.lake, call.value("full_name"), wanted, body.exempt, call.request())
    return NO_CONTENT


async def remove_restrictions(call: Call) -> Answer:
    await operations.remove_restrictions(call.lake, call.value("full_name"), call.request())
    return NO_CONTENT
