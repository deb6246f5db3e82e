"""Flink: a cluster inside one process, in batch mode, used through SQL. The catalog is the current one."""

import json
import sys
from typing import Any

from pyflink.common import Configuration  # type: ignore[import-not-found]  # it is in its own environment
from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]  # it is in its own environment

from tests.interop.engines.session_io import answer_lines, taken_output


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    environment = TableEnvironment.create(settings())
    options = {"type": "iceberg", "catalog-type": "rest", "uri": config["uri"], "warehouse": "main"}
    options |= config["properties"]
    if config["s3"]:
        options |= {"io-impl": "org.apache.iceberg.aws.s3.S3FileIO", "client.region": config["s3"]["region"]}
    quoted = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    environment.execute_sql(f"CREATE CATALOG sandur WITH ({quoted})")
    environment.execute_sql("USE CATALOG sandur")

    def answer(request: dict[str, Any]) -> list[list[Any]]:
        result = environment.execute_sql(request["sql"])
        if request["sql"].startswith(("SELECT", "SHOW")):
            with result.collect() as rows:
                return [list(row) for row in rows]
        result.wait()
        return []

    answer_lines(answers, answer)


def settings() -> EnvironmentSettings:
    """One task at a time, and no check that fails when a connection to S3 outlives the statement that opened it."""
    configuration = Configuration()
    configuration.set_string("parallelism.default", "1")
    configuration.set_string("classloader.check-leaked-classloader", "false")
    return EnvironmentSettings.new_instance().in_batch_mode().with_configuration(configuration).build()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
