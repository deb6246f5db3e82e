"""A run of the pipeline stores what it read and which commits it made; what it says about itself is verified."""

from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from sandur.catalog.lineage.events import facts_of, merge_facts
from sandur.catalog.lineage.runs import RunLineage, run_of
from sandur.operations.lineage.ingest import decode_batch
from sandur.pipeline.blocking_lake import BlockingLake
from sandur.pipeline.job import Job, JobContext, JobReport, WrittenTable
from sandur.pipeline.runs import record_own_run
from sandur.settings import Settings
from sandur.storage.contract import list_all

RUN_ID = "00000007-01a1eca1-7f02-7e49-94ce-b4cd8aa39517"
WRITTEN = WrittenTable(dataset="commits", table_uuid="u1", snapshot_id=9, commit_key="k1", rows=3)


def _job(context: JobContext) -> JobReport:
    return context.report("compact", counts={})


JOB = Job("compact", "", _job, reads=("receipts",))


def recorded(folder: Path, *written: WrittenTable) -> list[RunLineage]:
    """The runs in the log after a run that wrote these tables and read two datasets."""
    blocking = BlockingLake(Settings(store=str(folder), fsync="never"))
    context = JobContext(spark=cast("SparkSession", None), blocking=blocking, run_id=RUN_ID)  # It starts no Spark.
    context.read_datasets.update({"tables", "owners"})
    context.written.extend(written)
    try:
        assert record_own_run(context, JOB, 1_000) == ()
        listed = blocking.wait(list_all(blocking.lake.store, blocking.lake.layout.lineage_folder()))
        stored = [blocking.wait(blocking.lake.store.get(one.key)) for one in listed]
    finally:
        blocking.close()
    facts = [[facts_of(record)[1] for record in decode_batch(one.data)] for one in stored if one]
    return [run_of(merge_facts(some), default_catalog="main") for some in facts]


def test_a_run_that_committed_records_its_inputs_and_commits(tmp_path: Path) -> None:
    (run,) = recorded(tmp_path, WRITTEN)

    assert (run.run_id, run.job_name, run.state, run.is_own) == (RUN_ID[9:], "pipeline.compact", "COMPLETE", True)
    assert {port.reference.name for port in run.inputs} == {"sandur:receipts", "main.system.tables"}
    (output,) = run.outputs
    assert (output.reference.name, output.reference.keys) == ("main.system.commits", ("name main.system.commits",))
    assert (output.version, output.uuid, output.commit_key, output.rows) == ("9", "u1", "k1", 3)


def test_a_run_that_committed_nothing_records_nothing(tmp_path: Path) -> None:
    assert recorded(tmp_path) == []
