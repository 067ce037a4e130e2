"""Files of the look; their addresses have a hash of the content, so that browsers keep them as long as they like."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

STATIC: Final = Path(__file__).parent.parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_HASH_DIGITS: Final = 16


class StaticFile(NamedTuple):
    """A file that is served."""

    content_type: str
    data: bytes
    #: Quoted, as the header has it.
    etag: str


def static_files(folder: Path = STATIC) -> dict[str, StaticFile]:
    """By name; files of other types are no part of the look. Raises OSError."""
    found = {}
    for path in sorted(folder.iterdir()):
        if path.suffix in _TYPES:
            data = path.read_bytes()
            etag = f'"{hashlib.sha256(data).hexdigest()[:_HASH_DIGITS]}"'
            found[path.name] = StaticFile(_TYPES[path.suffix], data, etag)
    return found
