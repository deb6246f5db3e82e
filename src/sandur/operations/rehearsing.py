"""A workspace in which everything can be tried and nothing happens, for dry runs."""

from sandur.operations.workspace import Workspace
from sandur.storage.locations import Locations
from sandur.storage.object_store import ObjectStore
from sandur.storage.pretending import PretendingStore


def rehearsal(workspace: Workspace) -> Workspace:
    """A fresh workspace over the same stores: what is done in it is seen in it, and nowhere else.

    It remembers all that was written. It has nothing to close: the stores are those of the workspace.
    """
    store = PretendingStore(workspace.store)

    def open_other(root: str) -> ObjectStore:
        holder, _ = workspace.locations.holder(f"{root}/x")
        return PretendingStore(holder)

    own, others = workspace.locations.own, workspace.locations.others
    return Workspace(
        store=store,
        layout=workspace.layout,
        clock=workspace.clock,
        settings=workspace.settings,
        locations=Locations(own, store, others=others, open_store=open_other),
    )
