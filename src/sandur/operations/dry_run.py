"""A lake for dry runs: what is written in it is visible in it and nowhere else."""

from sandur.operations.lake import Lake
from sandur.storage.contract import ObjectStore
from sandur.storage.dry_run import DryRunStore
from sandur.storage.locations import Locations


def open_dry_run(lake: Lake) -> Lake:
    """A fresh workspace over the same stores: what is done in it is seen in it, and nowhere else.

    It remembers all that was written. It has nothing to close: the stores are those of the workspace.
    """
    store = DryRunStore(lake.store)

    def open_other(root: str) -> ObjectStore:
        holder, _ = lake.locations.holder(f"{root}/x")
        return DryRunStore(holder)

    own, others = lake.locations.own, lake.locations.others
    return Lake(
        store=store,
        layout=lake.layout,
        clock=lake.clock,
        settings=lake.settings,
        locations=Locations(own, store, others=others, open_store=open_other),
    )
