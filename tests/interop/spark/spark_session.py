"""A process with a session of `sandur.spark` that runs statements and the jobs of `jobs.py`."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import sandur.spark
from tests.interop.engines.session_io import answer_lines, taken_output
from tests.interop.spark import jobs


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    spark = _session(config)

    def answer(request: dict[str, Any]) -> object:
        if "sql" in request:
            return [list(row) for row in spark.sql(request["sql"]).collect()]
        return getattr(jobs, request["job"])(spark, **request["arguments"])

    answer_lines(answers, answer)
    spark.stop()


def _session(config: dict[str, Any]) -> SparkSession:
    versions = sandur.spark.Versions(**config["versions"])
    catalogs = [_connection(one) for one in config["catalogs"]]
    spark = sandur.spark.session(*catalogs, versions=versions, options=config["options"])
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _connection(config: dict[str, Any]) -> sandur.spark.Connection:
    s3 = config.pop("s3", None)
    return sandur.spark.Connection(**config, s3=sandur.spark.S3Store(**s3) if s3 is not None else None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
