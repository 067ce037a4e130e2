"""Environment variables that become lines of a ``.conf`` file, as ``apply-config-from-env.py`` of Pulsar's image does.

========================== ======================================================================
``PULSAR_PREFIX_key``      sets any key; one that the file has not gets a line at the end
``key``                    sets a key that the file has, also one that it has in a comment (``#key=``)
anything else              is passed over in silence
========================== ======================================================================

Where a variable has both names, the one with the prefix wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

PREFIX: Final = "PULSAR_PREFIX_"
#: What is shown of a secret.
HIDDEN: Final = "********"

#: A key's line, or that line as a comment.
_LINE: Final = re.compile(r"[ \t]*#?[ \t]*([A-Za-z][\w.\-]*)[ \t]*=")
_SECRET: Final = re.compile(r"password|secret|token|credential|authparam|authenticationparameters", re.IGNORECASE)


class Applied(NamedTuple):
    """A file as it is to be, and what was done, one sentence a key."""

    text: str
    done: tuple[str, ...]


def apply_environment(text: str, environment: Mapping[str, str]) -> Applied:
    """``text`` of a properties file with what ``environment`` says of its keys. Only the last line of a key counts."""
    lines = text.splitlines()
    places: dict[str, int] = {}
    active: dict[str, int] = {}
    for number, line in enumerate(lines):
        if (found := _LINE.match(line)) is None:
            continue
        places[found[1]] = number
        if not line.lstrip().startswith("#"):
            active[found[1]] = number
    # A comment after the line that counts explains it.
    places |= active
    wanted = {key: value for key, value in environment.items() if key in places}
    prefixed = {name.removeprefix(PREFIX): value for name, value in environment.items() if name.startswith(PREFIX)}
    done = []
    for key, value in sorted((wanted | prefixed).items()):
        if not key:
            continue
        line = f"{key}={_escaped(value.strip())}"
        shown = HIDDEN if _SECRET.search(key) else value.strip()
        if key in places:
            lines[places[key]] = line
            done.append(f"{key} = {shown}")
        else:
            lines.append(line)
            done.append(f"{key} = {shown} (new)")
    return Applied("\n".join(lines) + "\n", tuple(done))


def _escaped(value: str) -> str:
    """On one line. A backslash stays as it is and is read as the file's own, as in Pulsar's image."""
    return value.replace("\r", "").replace("\n", "\\n")
