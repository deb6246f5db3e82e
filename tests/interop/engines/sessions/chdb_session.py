"""ClickHouse, as a library: answers SQL over the database `sandur`, which is the catalog."""

import json
import sys
from typing import Any

from chdb.session import Session  # type: ignore[import-not-found]  # it is in its own environment

from tests.interop.engines.session_io import answer_lines, taken_output

# The first two features are experimental in ClickHouse. Without the last, other engines do not find its files.
SETTINGS = ("allow_database_iceberg", "allow_insert_into_iceberg", "write_full_path_in_iceberg_metadata")


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    session = Session()
    for name in SETTINGS:
        session.query(f"SET {name} = 1")
    session.query(attachment(config))

    def answer(request: dict[str, Any]) -> list[list[Any]]:
        text = str(session.query(request["sql"], "JSONCompactEachRow"))
        return [json.loads(line) for line in text.splitlines() if line]

    answer_lines(answers, answer)


def attachment(config: dict[str, Any]) -> str:
    s3 = config["s3"]
    keys = f", '{s3['access_key_id']}', '{s3['secret_access_key']}'" if s3 and s3["access_key_id"] else ""
    token = f", auth_header = 'Authorization: Bearer {config['token']}'" if config["token"] else ""
    endpoint = f", storage_endpoint = '{s3['endpoint']}/sandur'" if s3 else ""
    return (
        f"CREATE DATABASE sandur ENGINE = DataLakeCatalog('{config['uri']}/v1'{keys}) "
        f"SETTINGS catalog_type = 'rest', warehouse = 'main'{endpoint}{token}"
    )


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
