"""`sandur catalog`, `delta` and `index` with --server or --profile. Without these flags they work on the store."""

import json
from typing import Final

from sandur.catalog.identifiers import parse_full_name, path_text
from sandur.cli.change import TableOptions, definition_of
from sandur.cli.delta import DeltaTableOptions, path_in
from sandur.cli.flags import TargetFlags
from sandur.cli.output import print_records, say
from sandur.cli.targets import run_on_target
from sandur.client.catalog import UNITY, CatalogClient, Json, Name
from sandur.errors import BadRequest, Conflict

_PAGES_MAX: Final = 1_000


def create_catalog(name: str, flags: TargetFlags, *, root: str | None, allows: bool, as_json: bool) -> None:
    if allows:
        raise BadRequest("--allow-location is for a store; a server has its own setting, allowed_locations")
    made = run_on_target(
        lambda client: client.create_catalog(Name((name,)), root=root, comment=None, properties={}),
        flags,
        access="change",
    )
    if as_json:
        print(json.dumps(_row(made)))  # noqa: T201 - output for machines
        return
    say(f"Created catalog {made['name']}; its tables are stored below {made['storage_location']}")


def list_catalogs(flags: TargetFlags, *, as_json: bool) -> None:
    async def collect(client: CatalogClient) -> list[Json]:
        found: list[Json] = []
        query: dict[str, str] = {}
        for _ in range(_PAGES_MAX):
            page = await client.get(f"{UNITY}/catalogs", **query)
            found += page.get("catalogs") or ()
            if not page.get("next_page_token"):
                break
            query = {"page_token": page["next_page_token"]}
        return found

    rows = [_row(one) for one in run_on_target(collect, flags)]
    print_records(rows, ("name", "root", "id"), "json" if as_json else "table", empty="You may see no catalog.")


def _row(catalog: Json) -> dict[str, str]:
    return {"name": catalog["name"], "root": catalog["storage_location"], "id": catalog["id"]}


def create_delta_table(options: DeltaTableOptions, flags: TargetFlags, *, as_json: bool) -> None:
    if path_in(options.name):
        raise refuse("sandur delta create of a table without a name")
    identifier = parse_full_name(options.name)
    name = Name((identifier.catalog, *identifier.levels, identifier.name))
    definition = definition_of(
        TableOptions(
            options.columns,
            "delta",
            options.partition_by,
            options.cluster_by,
            options.properties,
            options.comment,
            options.location,
        )
    )

    async def make(client: CatalogClient) -> tuple[Json, bool]:
        try:
            return await client.define_table(name, definition), True
        except Conflict:
            if not options.if_not_exists:
                raise
        found = await client.describe(name)
        return {"id": found.get("id"), "location": found["table"]["location"]}, False

    made, is_new = run_on_target(make, flags, access="change")
    if as_json:
        row = {
            "name": options.name,
            "location": made["location"],
            "table_id": made["id"],
            "table_type": "EXTERNAL" if options.location else "MANAGED",
            "is_new": is_new,
        }
        print(json.dumps(row))  # noqa: T201 - output for machines
        return
    say(f"Delta table {options.name} {'created' if is_new else 'exists already'} at {made['location']}")


def rename_table(name: str, new_name: str, flags: TargetFlags, *, as_json: bool) -> None:
    source = parse_full_name(name)
    old = Name((source.catalog, *source.levels, source.name))
    new = Name((*old.parent.parts, new_name))

    async def rename(client: CatalogClient) -> None:
        await client.rename(old, await client.describe(old), new)

    run_on_target(rename, flags, access="change")
    shown = path_text(new.parts)
    if as_json:
        print(json.dumps({"name": shown}))  # noqa: T201 - output for machines
        return
    say(f"Renamed table {name} to {shown}")


def refuse(command: str) -> BadRequest:
    """The error of a command that no API has."""
    return BadRequest(
        f"{command} works on the store itself, also while servers run; run it where the store can be reached: "
        f"{command} --store URL"
    )
