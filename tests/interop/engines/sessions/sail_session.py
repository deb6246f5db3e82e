"""Sail: a Spark Connect server of its own kind, asked by Spark's thin client. The catalog is the current one."""

import json
import os
import sys
from typing import Any

from tests.interop.engines.answering import answer_lines, taken_output


def main(told: dict[str, Any]) -> None:
    answers = taken_output()
    os.environ |= settings(told)
    # Both are in an environment of their own; the settings are read when they are loaded.
    from pysail.spark import SparkConnectServer  # type: ignore[import-not-found] # noqa: PLC0415 - see above
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see above

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()

    def answer(request: dict[str, Any]) -> list[list[Any]]:
        return [list(row) for row in spark.sql(request["sql"]).collect()]

    answer_lines(answers, answer)
    spark.stop()
    server.stop()


def settings(told: dict[str, Any]) -> dict[str, str]:
    """What Sail reads from its environment."""
    shown = f', bearer_access_token="{told["token"]}"' if told["token"] else ""
    catalog = f'[{{type="iceberg-rest", name="sandur", uri="{told["uri"]}", warehouse="main"{shown}}}]'
    found = {"SAIL_CATALOG__LIST": catalog, "SAIL_CATALOG__DEFAULT_CATALOG": "sandur"}
    if s3 := told["s3"]:
        found |= {
            "AWS_ENDPOINT": s3["endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": s3["region"],
            "AWS_ACCESS_KEY_ID": s3["access_key_id"],
            "AWS_SECRET_ACCESS_KEY": s3["secret_access_key"],
        }
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
