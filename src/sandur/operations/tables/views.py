"""Create, load and commit to views."""

from dataclasses import dataclass
from typing import NamedTuple

from sandur.catalog import locations
from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.sources import Request
from sandur.iceberg.requests import TableCommit
from sandur.iceberg.requirements import check_create_requirements
from sandur.iceberg.updates import AssignUuid, SetLocation, Update
from sandur.iceberg.view_commit import (
    CreateView,
    ViewCommit,
    checked_view_requirements,
    checked_view_updates,
    create_view_metadata,
    next_view_metadata,
)
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.operations.lake import Lake
from sandur.operations.tables.changes import check_updates
from sandur.operations.tables.commit import Commit
from sandur.operations.tables.create import create_document
from sandur.operations.tables.documents import VIEWS, Document, encode_document, load_document, new_location
from sandur.operations.tables.load import LoadedView, effective_head
from sandur.operations.tables.locations import allowed_roots, chosen_location, default_location
from sandur.operations.tables.names import resolve_name


async def create_view(lake: Lake, namespace: Namespace, create: CreateView, request: Request) -> LoadedView:
    identifier = checked_identifier(Identifier(*namespace, create.name))
    properties = create.properties or {}
    locations.check_property_keys(properties)
    roots = await allowed_roots(lake, namespace.catalog)
    locations.check_paths(properties, roots)
    draft = _Created(lake, identifier, create, request, roots)
    document = await create_document(lake, VIEWS, identifier, draft, request=request, operation="create-view")
    return _loaded(document)


async def load_view(lake: Lake, identifier: Identifier) -> LoadedView:
    found = await resolve_name(lake, identifier)
    if found is None or not found.is_a("view"):
        raise VIEWS.missing(identifier)
    head = await effective_head(lake, found)
    return _loaded(await load_document(lake, VIEWS, head.metadata_location))


async def view_exists(lake: Lake, identifier: Identifier) -> bool:
    found = await resolve_name(lake, identifier)
    return found is not None and found.is_a("view")


async def commit_view(lake: Lake, identifier: Identifier, commit: ViewCommit, request: Request) -> LoadedView:
    roots = await allowed_roots(lake, identifier.catalog)
    change = ViewChange(commit, roots)
    return _loaded(await Commit(lake, VIEWS, identifier, change, request).run())


class ViewChange(NamedTuple):
    """A commit of one view. Views carry no random ids, so that none of their changes is known again by itself."""

    commit: ViewCommit
    roots: tuple[str, ...]

    @property
    def asserted_uuid(self) -> str | None:
        return next((requirement.uuid.lower() for requirement in self.commit.requirements), None)

    def applied_to(self, base: ViewMetadata, *, now_ms: int) -> ViewMetadata:
        check_updates(self.commit.updates, base.location, self.roots)
        return next_view_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)

    def is_in(self, current: ViewMetadata) -> bool:
        del current
        return False

    def operation_on(self, next_metadata: ViewMetadata) -> str:
        del next_metadata
        return "replace-view"


def view_change(commit: TableCommit, roots: tuple[str, ...]) -> ViewChange:
    """A change of a view as it stands in a transaction; what is for tables only is refused."""
    requirements = checked_view_requirements(commit.requirements)
    return ViewChange(ViewCommit(requirements=requirements, updates=checked_view_updates(commit.updates)), roots)


def created_view_metadata(
    lake: Lake, identifier: Identifier, commit: TableCommit, roots: tuple[str, ...]
) -> ViewMetadata:
    """What the updates of a transaction make of nothing; a uuid or a location they leave out is given."""
    updates: list[Update] = list(commit.updates)
    check_updates(updates, None, roots)
    check_create_requirements(commit.requirements)
    uuid = next((update.uuid for update in updates if isinstance(update, AssignUuid)), None)
    if uuid is None:
        uuid = lake.clock.new_uuid()
        updates.insert(0, AssignUuid(uuid=uuid))
    if not any(isinstance(update, SetLocation) for update in updates):
        updates.append(SetLocation(location=default_location(roots[0], identifier, uuid)))
    return next_view_metadata(None, (), updates, now_ms=lake.clock.now_ms())


@dataclass(frozen=True)
class _Created:
    """A view as a create request describes it."""

    lake: Lake
    identifier: Identifier
    create: CreateView
    request: Request
    roots: tuple[str, ...]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    is_written: bool = False

    def document(self, uuid: str) -> Document[ViewMetadata]:
        location = chosen_location(self.create.location, self.roots, self.identifier, uuid)
        now_ms = self.lake.clock.now_ms()
        metadata = create_view_metadata(self.create, location=location, view_uuid=uuid, now_ms=now_ms)
        request_hash = self.request.key_hash or self.request.hash
        place = new_location(self.lake, VIEWS, metadata, version=0, request_hash=request_hash)
        return encode_document(VIEWS, metadata, place)


def _loaded(document: Document[ViewMetadata]) -> LoadedView:
    return LoadedView(document.body, document.metadata.view_uuid, document.location)
