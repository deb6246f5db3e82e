"""Every case that is checked: what should hold, and what should break when a rule is left out."""

from proof.cases.aliases import CASES as ALIASES
from proof.cases.batches import CASES as BATCHES
from proof.cases.case import Case
from proof.cases.commit import CASES as COMMIT
from proof.cases.containers import CASES as CONTAINERS
from proof.cases.create import CASES as CREATE
from proof.cases.delivery import CASES as DELIVERY
from proof.cases.delta import CASES as DELTA
from proof.cases.drop import CASES as DROP
from proof.cases.event_containers import CASES as EVENT_CONTAINERS
from proof.cases.events import CASES as EVENTS
from proof.cases.feed import CASES as FEED
from proof.cases.first_version import CASES as FIRST_VERSION
from proof.cases.grants import CASES as GRANTS
from proof.cases.index import CASES as INDEX
from proof.cases.location_changes import CASES as LOCATION_CHANGES
from proof.cases.locations import CASES as LOCATIONS
from proof.cases.maintenance import CASES as MAINTENANCE
from proof.cases.rename import CASES as RENAME
from proof.cases.shared_reads import CASES as SHARED_READS
from proof.cases.stage import CASES as STAGE
from proof.cases.transaction import CASES as TRANSACTION
from proof.cases.undrop import CASES as UNDROP
from proof.cases.versions import CASES as VERSIONS

ALL: tuple[Case, ...] = (
    *COMMIT,
    *BATCHES,
    *CREATE,
    *CONTAINERS,
    *STAGE,
    *DROP,
    *RENAME,
    *TRANSACTION,
    *INDEX,
    *DELTA,
    *LOCATIONS,
    *LOCATION_CHANGES,
    *GRANTS,
    *SHARED_READS,
    *VERSIONS,
    *EVENTS,
    *UNDROP,
    *EVENT_CONTAINERS,
    *ALIASES,
    *FEED,
    *DELIVERY,
    *MAINTENANCE,
    *FIRST_VERSION,
)
