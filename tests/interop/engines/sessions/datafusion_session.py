"""DataFusion: SQL over tables that PyIceberg finds in the catalog."""

import json
import sys
from typing import Any

import pyarrow as pa
from datafusion import SessionContext  # type: ignore[import-not-found]  # it is in its own environment
from pyiceberg.catalog import load_catalog
from pyiceberg.table import StaticTable

from tests.interop.engines.session_io import answer_lines, taken_output


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    catalog = load_catalog("sandur", type="rest", uri=config["uri"], warehouse="main", **config["properties"])

    def answer(request: dict[str, Any]) -> list[list[Any]]:
        """The rows of a query over the tables that are named; they also go to the table `into`, if there is one."""
        context = SessionContext()
        for alias, name in request.get("tables", {}).items():
            table = catalog.load_table(name)
            # DataFusion takes texts only; among the properties is the login.
            properties = {key: value for key, value in table.io.properties.items() if key.startswith("s3.")}
            context.register_table(alias, StaticTable.from_metadata(table.metadata_location, properties))
        found: pa.Table = context.sql(request["sql"]).to_arrow_table()
        if into := request.get("into"):
            catalog.create_table_if_not_exists(into, found.schema).append(found)
        return [list(row.values()) for row in found.to_pylist()]

    answer_lines(answers, answer)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
