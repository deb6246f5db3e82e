"""Generate the Python code of the gRPC definitions in `src/sandur/v1`.

`python -m checks.grpc_code` writes it beside them; a test fails if it is not current.
"""

import sys
from importlib.resources import files
from pathlib import Path
from typing import Final

from grpc_tools import protoc

SOURCE: Final = Path(__file__).parent.parent / "src"
DEFINITIONS: Final = SOURCE / "sandur" / "v1"
GENERATED: Final = ("*_pb2.py", "*_pb2.pyi", "*_pb2_grpc.py")


def generate(target: Path) -> int:
    """Write the code below a folder, and return the exit code of the compiler."""
    well_known = files("grpc_tools") / "_proto"
    options = [f"-I{SOURCE}", f"-I{well_known}", *(f"--{kind}={target}" for kind in _OUTPUTS)]
    code: int = protoc.main(["protoc", *options, *(str(path) for path in sorted(DEFINITIONS.glob("*.proto")))])
    return code


_OUTPUTS: Final = ("python_out", "pyi_out", "grpc_python_out")


if __name__ == "__main__":
    sys.exit(generate(SOURCE))
