"""A separate process for the test: DuckDB runs statements through the Unity Catalog API, without keys of its own.

It prints the rows of each statement, or its error.
"""

import json
import os
import sys

import duckdb

from demo.duckdb_sessions import UNITY_EXTENSIONS, extension_file
from tests.servers.amazon_gateway import REGION


def main(url: str, token: str, mode: str, *statements: str) -> None:
    session = duckdb.connect()
    for name in UNITY_EXTENSIONS:
        session.load_extension(str(extension_file(name)))
    session.execute(f"SET ca_cert_file = '{os.environ['SSL_CERT_FILE']}'")
    session.execute(f"CREATE SECRET (TYPE unity_catalog, TOKEN '{token}', ENDPOINT '{url}', AWS_REGION '{REGION}')")
    session.execute(f"ATTACH 'main' AS uc (TYPE unity_catalog, DEFAULT_SCHEMA 's'{mode})")
    facts: list[object] = []
    for statement in statements:
        try:
            facts.append(session.execute(statement).fetchall())
        except duckdb.Error as error:
            facts.append(f"{type(error).__name__}: {str(error)[:1_000]}")
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


if __name__ == "__main__":
    main(*sys.argv[1:])
