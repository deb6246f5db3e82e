"""The actions that a page offers. Who may not do one of them learns at its form which privilege is missing."""

from typing import Final, NamedTuple
from urllib.parse import quote

from sandur.catalog.identifiers import Identifier, full_name_of, parse_schema_name
from sandur.server.ui.links import named_action_link, namespace_action_link, page_link, securable_action_link

_TYPES: Final = {"table": "table", "view": "table", "model": "registered_model"}
_ICEBERG: Final = (("restore", "Restore a version"), ("create-ref", "Tag or branch"), ("remove-ref", "Remove tag"))


class Choice(NamedTuple):
    text: str
    link: str
    is_dangerous: bool = False


def workspace_actions() -> tuple[Choice, ...]:
    chosen = (("grant", "Grants"), ("owner", "Owner"), ("policy", "Policy"))
    return tuple(Choice(text, securable_action_link(action, *2 * ("metastore",))) for action, text in chosen)


def catalog_actions(catalog: str) -> tuple[Choice, ...]:
    return (
        Choice("Create a namespace", page_link(f"/actions/create-namespace/{_quoted(catalog)}")),
        *_governed("catalog", catalog),
        Choice("Comment", securable_action_link("comment", "catalog", catalog)),
        Choice("Policy", securable_action_link("policy", "catalog", catalog)),
        Choice("Dropped objects", page_link(f"/dropped/{_quoted(catalog)}")),
    )


def namespace_actions(name: str) -> tuple[Choice, ...]:
    """The actions on the namespace of that full name."""
    namespace = parse_schema_name(name)
    inside = page_link(f"/actions/create-namespace/{_quoted(namespace.catalog)}", parent=str(namespace))
    return (
        Choice("Create a namespace", inside),
        Choice("Create a view", namespace_action_link("create-view", namespace)),
        Choice("Properties", namespace_action_link("namespace-properties", namespace)),
        *_governed("schema", name),
        Choice("Comment", securable_action_link("comment", "schema", name)),
        Choice("Policy", securable_action_link("policy", "schema", name)),
        Choice("Drop", namespace_action_link("drop-namespace", namespace), is_dangerous=True),
    )


def object_actions(identifier: Identifier, kind: str, format_: str = "") -> tuple[Choice, ...]:
    """The actions on a table, view, volume, function or model; some are for Iceberg tables only."""
    name, type_ = full_name_of(identifier), _TYPES.get(kind, kind)
    is_iceberg = format_ == "iceberg"
    own: list[Choice] = []
    if kind == "table" and is_iceberg:
        own += [Choice(text, named_action_link(action, identifier)) for action, text in _ICEBERG]
        own.append(Choice("Properties", named_action_link("table-properties", identifier)))
    if kind == "table" and format_ == "delta":
        own.append(Choice("Restore a version", named_action_link("restore-delta", identifier)))
    if kind == "view" and is_iceberg:
        own.append(Choice("Edit", named_action_link("edit-view", identifier)))
    if kind in {"table", "view"}:
        own.append(Choice("Rename", named_action_link(f"rename-{kind}", identifier)))
    if is_iceberg or kind in {"volume", "model"}:
        commented = "view" if kind == "view" else type_
        own.append(Choice("Comment", securable_action_link("comment", commented, name)))
    own += _governed(type_, name)
    if kind == "table":
        own.append(Choice("Policy", securable_action_link("policy", "table", name)))
        own.append(Choice("Maintenance", named_action_link("maintain", identifier)))
    own.append(Choice("Drop", named_action_link(f"drop-{kind}", identifier), is_dangerous=True))
    return tuple(own)


def _governed(type_: str, name: str) -> tuple[Choice, ...]:
    return (
        Choice("Grants", securable_action_link("grant", type_, name)),
        Choice("Owner", securable_action_link("owner", type_, name)),
        Choice("Tags", securable_action_link("tags", type_, name)),
    )


def _quoted(name: str) -> str:
    return quote(name, safe="")
