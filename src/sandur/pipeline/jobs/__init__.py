"""The jobs, one file each; `JOBS` holds them in the order in which `sandur run all` runs them."""

from collections.abc import Mapping
from typing import Final

from sandur.pipeline.job import Job
from sandur.pipeline.jobs.audit import AUDIT_JOB
from sandur.pipeline.jobs.collect_garbage import COLLECT_GARBAGE
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.health import HEALTH
from sandur.pipeline.jobs.import_tables import IMPORT
from sandur.pipeline.jobs.lineage import LINEAGE_JOB
from sandur.pipeline.jobs.maintain import MAINTAIN
from sandur.pipeline.jobs.metrics import METRICS
from sandur.pipeline.jobs.project import PROJECT
from sandur.pipeline.jobs.rebuild_index import REBUILD_INDEX
from sandur.pipeline.jobs.reconcile import RECONCILE
from sandur.pipeline.jobs.verify import VERIFY

_OF_TABLES: Final = (RECONCILE, COMPACT, PROJECT, METRICS, HEALTH, MAINTAIN)
_ALL: Final = (*_OF_TABLES, AUDIT_JOB, LINEAGE_JOB, REBUILD_INDEX, COLLECT_GARBAGE, VERIFY, IMPORT)

JOBS: Final[Mapping[str, Job]] = {job.name: job for job in _ALL}
