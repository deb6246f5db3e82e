"""Create, load and commit to views: as tables, with the rules of views."""

from dataclasses import dataclass
from typing import NamedTuple

from sandur.catalog import guardrails
from sandur.catalog.identifiers import Identifier, Namespace, checked_identifier
from sandur.catalog.sources import Request
from sandur.iceberg.updates import RemoveProperties, SetLocation, SetProperties
from sandur.iceberg.view_commit import next_view_metadata
from sandur.iceberg.view_create import create_view_metadata
from sandur.iceberg.view_metadata import ViewMetadata
from sandur.iceberg.view_requests import CreateView, ViewCommit
from sandur.operations.commit import Commit
from sandur.operations.creation import Creation
from sandur.operations.documents import VIEWS, Document, load_document, new_location, written_as
from sandur.operations.load_table import effective_head
from sandur.operations.names import look
from sandur.operations.placing import allowed_roots, chosen_location
from sandur.operations.results import LoadedView
from sandur.operations.workspace import Workspace


async def create_view(workspace: Workspace, namespace: Namespace, create: CreateView, request: Request) -> LoadedView:
    identifier = checked_identifier(Identifier(*namespace, create.name))
    properties = create.properties or {}
    guardrails.check_property_keys(properties)
    roots = await allowed_roots(workspace, namespace.catalog)
    guardrails.check_paths(properties, roots)
    draft = _Created(workspace, identifier, create, request, roots)
    document = await Creation(workspace, VIEWS, identifier, draft, request, "create-view").run()
    return _loaded(document)


async def load_view(workspace: Workspace, identifier: Identifier) -> LoadedView:
    found = await look(workspace, identifier)
    if found is None or found.name.value.kind != "view":
        raise VIEWS.missing(identifier)
    head = await effective_head(workspace, found)
    return _loaded(await load_document(workspace, VIEWS, head.metadata_location))


async def view_exists(workspace: Workspace, identifier: Identifier) -> bool:
    found = await look(workspace, identifier)
    return found is not None and found.name.value.kind == "view"


async def commit_view(workspace: Workspace, identifier: Identifier, commit: ViewCommit, request: Request) -> LoadedView:
    roots = await allowed_roots(workspace, identifier.catalog)
    change = _ViewChange(commit, roots)
    return _loaded(await Commit(workspace, VIEWS, identifier, change, request).run())


class _ViewChange(NamedTuple):
    """A commit of one view. Views carry no random ids, so that none of their changes is known again by itself."""

    commit: ViewCommit
    roots: tuple[str, ...]

    @property
    def asserted_uuid(self) -> str | None:
        return next((requirement.uuid.lower() for requirement in self.commit.requirements), None)

    def applied_to(self, base: ViewMetadata, *, now_ms: int) -> ViewMetadata:
        for update in self.commit.updates:
            match update:
                case SetProperties():
                    guardrails.check_property_keys(update.updates)
                    guardrails.check_paths(update.updates, self.roots)
                case RemoveProperties():
                    guardrails.check_property_keys(update.removals)
                case SetLocation():
                    guardrails.check_moved_location(update.location, base.location, self.roots)
                case _:
                    pass
        return next_view_metadata(base, self.commit.requirements, self.commit.updates, now_ms=now_ms)

    def is_in(self, current: ViewMetadata) -> bool:
        del current
        return False

    def operation_on(self, next_metadata: ViewMetadata) -> str:
        del next_metadata
        return "replace-view"


@dataclass(frozen=True)
class _Created:
    """A view as a create request describes it."""

    workspace: Workspace
    identifier: Identifier
    create: CreateView
    request: Request
    roots: tuple[str, ...]
    uuid: str | None = None
    is_named_by_uuid: bool = False
    is_written: bool = False

    def document(self, uuid: str) -> Document[ViewMetadata]:
        location = chosen_location(self.create.location, self.roots, self.identifier, uuid)
        now_ms = self.workspace.clock.now_ms()
        metadata = create_view_metadata(self.create, location=location, view_uuid=uuid, now_ms=now_ms)
        request_hash = self.request.key_hash or self.request.hash
        place = new_location(self.workspace, VIEWS, metadata, version=0, request_hash=request_hash)
        return written_as(VIEWS, metadata, place)


def _loaded(document: Document[ViewMetadata]) -> LoadedView:
    return LoadedView(document.body, document.metadata.view_uuid, document.location)
