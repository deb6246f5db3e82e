"""Where PySpark or Java is missing: the package imports, its options are told, and a session says what to do."""

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


def test_without_pyspark_options_work_and_a_session_says_what_to_install() -> None:
    assert printed(WITHOUT_PYSPARK) == ["5", "Spark sessions need PySpark: pip install 'sandur[spark]'"]


def test_without_java_a_session_says_so(tmp_path: Path) -> None:
    assert printed(WITHOUT_JAVA, PATH=str(tmp_path)) == [
        "Spark sessions need Java 17 or newer: put java on the PATH, or set JAVA_HOME"
    ]


def test_the_package_itself_needs_nothing_but_python() -> None:
    """Other Sparks, in environments of their own, have it on their path and nothing else of ours."""
    script = """
import sys
before = set(sys.modules)
import sandur.spark
new = {name.partition(".")[0] for name in set(sys.modules) - before}
print(sorted(name for name in new if name not in sys.stdlib_module_names))
"""
    assert printed(script) == ["['sandur']"]
