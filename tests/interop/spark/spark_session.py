"""What runs beside the tests: a session of `sandur.spark` that answers statements and runs the jobs of `jobs.py`."""

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

import sandur.spark
from tests.interop.engines.answering import answer_lines, taken_output
from tests.interop.spark import jobs


def main(told: dict[str, Any]) -> None:
    answers = taken_output()
    spark = _session(told)

    def answer(request: dict[str, Any]) -> object:
        if "sql" in request:
            return [list(row) for row in spark.sql(request["sql"]).collect()]
        return getattr(jobs, request["job"])(spark, **request["arguments"])

    answer_lines(answers, answer)
    spark.stop()


def _session(told: dict[str, Any]) -> SparkSession:
    versions = sandur.spark.Versions(**told["versions"])
    catalogs = [_connection(one) for one in told["catalogs"]]
    spark = sandur.spark.session(*catalogs, versions=versions, options=told["options"])
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _connection(told: dict[str, Any]) -> sandur.spark.Connection:
    s3 = told.pop("s3", None)
    return sandur.spark.Connection(**told, s3=sandur.spark.S3Store(**s3) if s3 else None)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
