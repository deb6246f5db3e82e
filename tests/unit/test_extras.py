"""Optional packages are loaded on first use, and a missing one is named with its extra."""

import subprocess
import sys

import pytest

from sandur.errors import Unsupported
from sandur.extras import LazyModule

SCRIPT = """
import sys
import sandur.cli.serve
import sandur.server.serve
print(sorted({"grpc", "numpy", "opentelemetry", "pandas", "pyarrow", "pyspark"} & set(sys.modules)))
"""


def test_a_server_loads_no_optional_package_at_its_start() -> None:
    loaded = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=True)

    assert loaded.stdout.strip() == "[]"


def test_a_lazy_module_has_the_attributes_of_its_module() -> None:
    module = LazyModule("json")

    assert module.loads("[1]") == [1]
    with pytest.raises(AttributeError, match="nothing"):
        _ = module.nothing


def test_a_missing_package_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow.orc", None)  # As if it were not installed.

    with pytest.raises(Unsupported, match=r"this server has no pyarrow: pip install 'sandur\[planning\]'"):
        _ = LazyModule("pyarrow.orc").read_table
    with pytest.raises(ModuleNotFoundError):
        _ = LazyModule("no_such_module").anything
