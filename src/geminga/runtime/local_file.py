"""Reading small local files that a user names: keys, tokens. Blocks for a moment; never on a data path."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: Nothing that is read here is larger.
LOCAL_FILE_BYTES_MAX: Final = 1024 * 1024


def read_local_file(path: str) -> bytes:
    """The whole file; raises OSError, also for one over ``LOCAL_FILE_BYTES_MAX``."""
    with Path(path).open("rb") as file:
        data = file.read(LOCAL_FILE_BYTES_MAX + 1)
    if len(data) > LOCAL_FILE_BYTES_MAX:
        raise OSError(f"{path}: larger than {LOCAL_FILE_BYTES_MAX} bytes")
    return data
