"""Without PySpark or Java: the package can be imported, options work, and a session explains what to install."""

import os
import subprocess
import sys
from pathlib import Path

# Shadows the real package, as if it were not installed.
WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
import sandur.spark
from sandur.errors import Unfit
print(len(sandur.spark.session_options()))
try:
    sandur.spark.session()
except Unfit as error:
    print(error)
"""

WITHOUT_JAVA = """
import sandur.spark
from sandur.errors import Unfit
try:
    sandur.spark.session()
except Unfit as error:
    print(error)
"""


def printed(script: str, **environment: str) -> list[str]:
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True, env=kept | environment
    )
    return done.stdout.splitlines()


def test_without_pyspark_options_work_and_a_session_explains_what_to_install() -> None:
    assert printed(WITHOUT_PYSPARK) == ["5", "Spark sessions need PySpark: pip install 'sandur[spark]'"]


def test_without_java_a_session_explains_what_to_install(tmp_path: Path) -> None:
    assert printed(WITHOUT_JAVA, PATH=str(tmp_path)) == [
        "Spark sessions need Java 17 or newer: put java on the PATH, or set JAVA_HOME"
    ]


def test_the_package_imports_only_the_standard_library() -> None:
    """Other versions of Spark run in their own environments with only this package on the path."""
    script = """
import sys
before = set(sys.modules)
import sandur.spark
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in new if name not in sys.stdlib_module_names))
"""
    assert printed(script) == ["['sandur']"]
