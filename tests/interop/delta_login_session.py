"""A separate Spark process in which Delta's client of Unity Catalog logs in and loads tables; it prints the results.

It logs in with the classes of Unity Catalog that Spark's connector uses, too.
"""

import json
import sys
from typing import Any

from py4j.protocol import Py4JJavaError

from sandur.spark.statements import _Kernel
from tests.interop.delta_sessions import delta_session


def main(url: str, folder: str, logins: dict[str, dict[str, str]]) -> None:
    spark = delta_session(url, folder)
    kernel = _Kernel(spark)
    facts = {name: _facts(kernel, {"uri": url, **settings}) for name, settings in logins.items()}
    spark.stop()
    print(f"FACTS {json.dumps(facts)}")  # noqa: T201 - what the test reads


def _facts(kernel: Any, settings: dict[str, str]) -> dict[str, str]:
    """What a client with these settings finds out about each table, and what it may create."""
    commits = kernel.jvm.io.delta.storage.commit

    def named(table: str) -> Any:
        return commits.TableIdentifier(kernel.strings(("main", "sales")), table)

    client = commits.uccommitcoordinator.UCDeltaTokenBasedRestClient(settings, None)
    try:
        return {
            "readable": _outcome(lambda: client.loadTable(named("readable"))),
            "hidden": _outcome(lambda: client.loadTable(named("hidden"))),
            "new": _outcome(lambda: client.createStagingTable(named("new"))),
        }
    finally:
        client.close()


def _outcome(work: Any) -> str:
    try:
        work()
    except Py4JJavaError as error:
        return str(error.java_exception)
    return "done"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
