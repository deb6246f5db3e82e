"""The jobs, one file each; `JOBS` holds them in the order in which `sandur run all` runs them."""

from collections.abc import Mapping
from typing import Final

from sandur.pipeline.job import Job
from sandur.pipeline.jobs.compact import COMPACT
from sandur.pipeline.jobs.project import PROJECT

JOBS: Final[Mapping[str, Job]] = {job.name: job for job in (COMPACT, PROJECT)}
