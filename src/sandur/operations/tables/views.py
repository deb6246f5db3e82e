"""Create, load and commit to views: as tables, with the rules of views."""

from typing import NamedTuple

from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.records import Request
from sandur.iceberg.requests import TableCommit, check_create_requirements
from sandur.iceberg.view_commit import (
    CreateView,
    ViewCommit,
    checked_view_requirements,
    checked_view_updates,
    create_view_metadata,
    next_view_metadata,
)
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.access import resolve_authorized
from sandur.operations.lake import Lake
from sandur.operations.locations.placement import allowed_roots
from sandur.operations.name_access import authorize_places
from sandur.operations.tables.changes import changes_places, check_updates, named_places, sets_paths
from sandur.operations.tables.commit import Commit
from sandur.operations.tables.create import DocumentDraft, chosen_location, named_locations, with_defaults
from sandur.operations.tables.creation import Creation
from sandur.operations.tables.documents import VIEWS, Document, load_document, name_exists
from sandur.operations.tables.names import effective_head, name_not_found


class LoadedView(NamedTuple):
    """A view as a client gets it; `metadata` is JSON."""

    metadata: bytes
    view_uuid: str
    metadata_location: str


async def create_view(lake: Lake, namespace: Namespace, create: CreateView, request: Request) -> LoadedView:
    identifier = checked_identifier(Identifier(*namespace, create.name))
    named = await named_locations(lake, namespace.catalog, create.location, create.properties or {})

    def metadata(uuid: str) -> ViewMetadata:
        location = chosen_location(lake, create.location, identifier, uuid)
        return create_view_metadata(create, location=location, view_uuid=uuid, now_ms=lake.clock.now_ms())

    draft = DocumentDraft(lake, VIEWS, request, metadata, named_locations=named)
    return loaded_view(await Creation(lake, identifier, draft, request, "create-view").run())


async def load_view(lake: Lake, identifier: Identifier) -> LoadedView:
    missing = name_not_found(identifier, "view")
    found = await resolve_authorized(lake, identifier, lambda found: found.is_a("view"), missing=missing)
    head = await effective_head(lake, found)
    return loaded_view(await load_document(lake, VIEWS, head.metadata_location))


async def view_exists(lake: Lake, identifier: Identifier) -> bool:
    return await name_exists(lake, identifier, "view")


async def commit_view(lake: Lake, identifier: Identifier, commit: ViewCommit, request: Request) -> LoadedView:
    if sets_paths(commit.updates):
        await allowed_roots(lake, identifier.catalog)
    check_updates(commit.updates)
    await authorize_places(lake, identifier.catalog, named_places(commit.updates))
    return loaded_view(await Commit(lake, VIEWS, identifier, ViewChange(commit), request).run())


def loaded_view(document: Document[ViewMetadata]) -> LoadedView:
    return LoadedView(document.body, document.metadata.view_uuid, document.location)


class ViewChange(NamedTuple):
    """The commit of one view. Views carry no random ids, so metadata alone never shows that a change was applied."""

    commit: ViewCommit

    @property
    def asserted_uuid(self) -> str | None:
        return next((requirement.uuid.lower() for requirement in self.commit.requirements), None)

    def apply(self, base: ViewMetadata, *, now_ms: int) -> ViewMetadata:
        return next_view_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)

    def is_possible(self, base: ViewMetadata) -> bool:
        return self.asserted_uuid in {None, base.view_uuid.lower()}

    def relocates(self, base: ViewMetadata) -> bool:
        return changes_places(self.commit.updates, base.location, base.properties)

    def is_applied(self, current: ViewMetadata) -> bool:
        del current
        return False

    def operation(self, next_metadata: ViewMetadata) -> str:
        del next_metadata
        return "replace-view"

    @property
    def sets_paths(self) -> bool:
        return sets_paths(self.commit.updates)


def view_change(commit: TableCommit) -> ViewChange:
    """The change of a view from a transaction; refuses requirements and updates that only tables have."""
    requirements = checked_view_requirements(commit.requirements)
    updates = checked_view_updates(commit.updates)
    return ViewChange(ViewCommit(requirements=requirements, updates=updates))


def created_view_metadata(lake: Lake, identifier: Identifier, commit: TableCommit) -> ViewMetadata:
    """The metadata that the updates of a transaction build from nothing."""
    updates = with_defaults(lake, identifier, commit)
    check_create_requirements(commit.requirements)
    return next_view_metadata(None, (), updates, now_ms=lake.clock.now_ms())
