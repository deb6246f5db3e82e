"""Sail: its own Spark Connect server, used through Spark's thin client. The catalog is the current one."""

import json
import os
import sys
from typing import Any

from tests.interop.engines.session_io import answer_lines, taken_output


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    os.environ |= settings(config)
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


def settings(config: dict[str, Any]) -> dict[str, str]:
    """What Sail reads from its environment."""
    token = f', bearer_access_token="{config["token"]}"' if config["token"] else ""
    catalog = f'[{{type="iceberg-rest", name="sandur", uri="{config["uri"]}", warehouse="main"{token}}}]'
    found = {"SAIL_CATALOG__LIST": catalog, "SAIL_CATALOG__DEFAULT_CATALOG": "sandur"}
    if s3 := config["s3"]:
        found |= {
            "AWS_ENDPOINT": s3["endpoint"],
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": s3["region"],
        }
        if s3["access_key_id"]:
            found |= {"AWS_ACCESS_KEY_ID": s3["access_key_id"], "AWS_SECRET_ACCESS_KEY": s3["secret_access_key"]}
    return found


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
