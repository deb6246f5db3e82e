"""The bound of what a compressed file may become: clients write the files, and a small one can hold many zeros."""

from typing import Final

UNCOMPRESSED_BYTES_MAX: Final = 1 << 30
"""The bound for any file."""

_ALWAYS_ALLOWED_BYTES: Final = 64 << 20
# Metadata and manifests shrink to a tenth or a thirtieth. Gzip can shrink zeros to a thousandth.
_RATIO_MAX: Final = 200


def uncompressed_bytes_max(compressed_bytes: int) -> int:
    """How large a file of that size may become: 64 MiB, or 200 times its size, and never more than 1 GiB."""
    return min(UNCOMPRESSED_BYTES_MAX, max(_ALWAYS_ALLOWED_BYTES, _RATIO_MAX * compressed_bytes))
