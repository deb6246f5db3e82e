"""dlt: pipelines that load rows into Iceberg tables of the catalog."""

import json
import sys
import tempfile
from typing import Any, Final

import dlt  # type: ignore[import-not-found]  # it is in its own environment
from pyiceberg.catalog import load_catalog

from tests.interop.engines.session_io import answer_lines, taken_output

_DISPOSITIONS: Final[dict[str, Any]] = {
    "append": "append",
    "replace": "replace",
    "merge": {"disposition": "merge", "strategy": "upsert"},
}


class Loader:
    """Loads rows with one pipeline per dataset."""

    def __init__(self, config: dict[str, Any], folder: str) -> None:
        self._folder = folder
        self._properties = {"type": "rest", "uri": config["uri"], "warehouse": "main", **config["properties"]}
        self._credentials: dict[str, str] = {}
        if (s3 := config["s3"]) is not None:
            self._credentials = {
                "aws_access_key_id": s3["access_key_id"],
                "aws_secret_access_key": s3["secret_access_key"],
                "endpoint_url": s3["endpoint"],
                "region_name": s3["region"],
            }
        dlt.config["iceberg_catalog.iceberg_catalog_type"] = "rest"
        dlt.config["iceberg_catalog.iceberg_catalog_config"] = self._properties

    def load(self, namespace: str, table: str, how: str, rows: list[dict[str, Any]]) -> None:
        # dlt chooses the location of every table itself: a folder of the dataset below this root.
        location = load_catalog("sandur", **self._properties).load_namespace_properties(namespace)["location"]
        root = location.removesuffix(f"/{namespace}")
        destination = dlt.destinations.filesystem(root, credentials=self._credentials or None)
        pipeline = dlt.pipeline(namespace, destination=destination, dataset_name=namespace, pipelines_dir=self._folder)
        pipeline.run(
            rows,
            table_name=table,
            table_format="iceberg",
            primary_key="id" if how == "merge" else None,
            write_disposition=_DISPOSITIONS[how],
        ).raise_on_failed_jobs()


def main(config: dict[str, Any]) -> None:
    answers = taken_output()
    with tempfile.TemporaryDirectory(prefix="sandur-dlt-pipelines-") as folder:
        loader = Loader(config, folder)
        answer_lines(answers, lambda request: loader.load(**request))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
