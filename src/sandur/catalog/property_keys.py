"""Keys of properties that no client may set: those of the catalog, and those that configure the programs of readers.

A reader of a table takes its properties over into its own configuration. PyIceberg merges them with the options of its
catalog and of its file access, and imports the classes that they name; Spark passes the properties of Unity Catalog's
tables to Hadoop. Such a property can run code in other programs, or send their tokens and keys elsewhere.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from sandur.catalog.locations import check_property_keys
from sandur.errors import Invalid

_LOGIN: Final = ("auth", "credential", "credentials", "oauth2-server-uri", "ssl", "token", "uri")
_LOGIN_FAMILIES: Final = ("auth", "header", "oauth2", "rest", "token-exchange", "token-refresh")
_FILE_ACCESS_FAMILIES: Final = (
    *("adls", "azure", "client", "dell", "ecs", "fs", "gcs", "hadoop", "hdfs", "hf", "http-client"),
    *("oss", "s3", "s3a", "s3n"),
)
_CLOUD_CATALOG_FAMILIES: Final = ("aws", "dynamodb", "glue", "jdbc", "lakeformation")

# A family is everything below its name; `x.impl`, `x-impl` and `x.class-name` name classes to load.
_CLIENT_KEYS: Final = re.compile(
    rf"(?:{'|'.join(map(re.escape, _LOGIN))})"
    rf"|(?:{'|'.join(map(re.escape, (*_LOGIN_FAMILIES, *_FILE_ACCESS_FAMILIES, *_CLOUD_CATALOG_FAMILIES)))})[.].*"
    r"|(?:.*[.-])?impl|(?:.*[.-])?signer(?:[.-].*)?|.*[.-](?:access-key(?:-id)?|client-secret|secret-access-key|session-token|sas-token)",
    re.DOTALL,
)
_ADDED_BY_SPARK: Final = ("fs.", "option.")


def is_client_key(key: str) -> bool:
    """Whether a client that reads the property configures itself with it."""
    return _CLIENT_KEYS.fullmatch(key.lower()) is not None


def check_new_keys(keys: Iterable[str]) -> None:
    """Raise Invalid if a key belongs to the catalog or configures clients. Such keys may still be removed."""
    given = tuple(keys)
    check_property_keys(given)
    refused = sorted(key for key in given if is_client_key(key))
    if refused:
        raise Invalid(
            f"Invalid properties: {', '.join(refused)} would configure the clients that read them (file access, login, "
            "classes to load); set them in the configuration of each client instead"
        )


def without_client_keys(properties: Mapping[str, str]) -> Mapping[str, str]:
    """The properties that clients may see; earlier releases stored every property."""
    if any(map(is_client_key, properties)):
        return {key: value for key, value in properties.items() if not is_client_key(key)}
    return properties


def without_spark_options(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties of a new table in Unity Catalog, without the access keys that Spark's connector adds to them."""
    return {key: value for key, value in properties.items() if not key.startswith(_ADDED_BY_SPARK)}
