"""Request bodies about views, decoded completely before anything acts on them."""

import msgspec

from sandur.iceberg.raw_json import check_utf8, decode
from sandur.iceberg.requests import TableIdentifier, decode_table_commit
from sandur.iceberg.requirements import AssertViewUuid
from sandur.iceberg.schema import Schema
from sandur.iceberg.updates import ViewVersion
from sandur.iceberg.view_commit import ViewUpdate, checked_view_requirements, checked_view_updates


class ViewCommit(msgspec.Struct, frozen=True):
    """What a commit on a view asks for; `identifier` may be absent, since the request is addressed to the view."""

    requirements: tuple[AssertViewUuid, ...]
    updates: tuple[ViewUpdate, ...]
    identifier: TableIdentifier | None = None


class CreateView(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    schema: Schema
    view_version: ViewVersion
    location: str | None = None
    properties: dict[str, str] | None = None


class RegisterView(msgspec.Struct, frozen=True, rename="kebab"):
    name: str
    metadata_location: str


def decode_view_commit(body: bytes) -> ViewCommit:
    """A commit on a view; raises `BadRequest` that lists what is unknown, or what is for tables only."""
    commit = decode_table_commit(body)
    return ViewCommit(
        requirements=checked_view_requirements(commit.requirements),
        updates=checked_view_updates(commit.updates),
        identifier=commit.identifier,
    )


def decode_create_view(body: bytes) -> CreateView:
    """A request to create a view; raises `BadRequest`."""
    check_utf8(body, "create view request")
    return decode(body, CreateView, "create view request")


def decode_register_view(body: bytes) -> RegisterView:
    """A request to register a metadata file as a view; raises `BadRequest`."""
    check_utf8(body, "register view request")
    return decode(body, RegisterView, "register view request")
