"""Where the image's configuration is read and written: its own files, or copies of them where those are read-only.

A copy is of one start of the container: one that a start before left on the volume does not count.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import Final

#: Where the image keeps everything; the variable PULSAR_HOME says otherwise.
HOME: Final = "/pulsar"
#: For copies, tried in this order: a tmpfs if there is one, else the volume; below the home where they are relative.
COPY_DIRECTORIES: Final = ("/run/geminga", "/tmp/geminga", "data/.conf")


def copy_places(home: str, path: str, directories: Sequence[str]) -> list[str]:
    """Where a copy of the file ``path`` may be, the first choice first."""
    name = path.strip("/").replace("/", "-")
    return [posixpath.join(home, directory, name) for directory in directories]


def start_place(place: str) -> str:
    """Where it stands of which start of the container a copy is."""
    return f"{place}.start"


def is_current(noted: str, start: str) -> bool:
    """Whether a copy that was ``noted`` to be of one start is of ``start``, which is empty where it can not be told.

    Not by times of files: a clock that is set forward while the container runs would make all of them old.
    """
    return not start or noted == start
