"""Environment variables that become lines of a ``.conf`` file, as ``apply-config-from-env.py`` of Pulsar's image does.

========================== ======================================================================
``PULSAR_PREFIX_key``      sets any key; one that the file has not gets a line at the end
``key``                    sets a key that the file has, also one that it has in a comment (``#key=``)
anything else              is passed over in silence
========================== ======================================================================

Where a variable has both names, the one with the prefix wins. A key's line goes with the lines that continue it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from geminga.model.errors import ConfigurationError
from geminga.model.secret import names_secret

PREFIX: Final = "PULSAR_PREFIX_"
#: What is shown of a secret.
HIDDEN: Final = "********"

#: As whoever reads the file ends its lines; Python's own have more, which are part of a value.
_LINE_END: Final = re.compile(r"\r\n|\r|\n")
#: A key's line, or that line as a comment.
_LINE: Final = re.compile(r"[ \t]*#?[ \t]*([A-Za-z][\w.\-]*)[ \t]*=")
#: Beside what is one to every server: of files for others, and rather one too many in a log.
_SECRET: Final = re.compile(r"password|secret|token|credential|authparam|authenticationparameters", re.IGNORECASE)


class Applied(NamedTuple):
    """A file as it is to be, and what was done, one sentence a key."""

    text: str
    done: tuple[str, ...]


def apply_environment(text: str, environment: Mapping[str, str]) -> Applied:
    """``text`` of a properties file with what ``environment`` says of its keys. Only the last line of a key counts.

    Raises ConfigurationError for a value that can not stand in such a file.
    """
    lines = _logical_lines(text)
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
        line = f"{key}={_escaped(key, value.strip())}"
        shown = HIDDEN if _SECRET.search(key) or names_secret(key) else value.strip()
        if key in places:
            lines[places[key]] = line
            done.append(f"{key} = {shown}")
        else:
            lines.append(line)
            done.append(f"{key} = {shown} (new)")
    return Applied("\n".join(lines) + "\n", tuple(done))


def _logical_lines(text: str) -> list[str]:
    """Each with those that continue it: a value's second half is no key, and goes when the key gets another value."""
    found: list[str] = []
    is_continued = False
    *lines, rest = _LINE_END.split(text)
    for line in (*lines, rest) if rest else lines:
        if is_continued:
            found[-1] += f"\n{line}"
        else:
            found.append(line)
        is_comment = not is_continued and line.lstrip()[:1] in ("#", "!")
        is_continued = not is_comment and _ends_open(line)
    if is_continued:
        found[-1] += "\n"  # or what is added behind it would be of its value
    return found


def _ends_open(line: str) -> bool:
    """Whether the next line belongs to it: an odd number of backslashes at its end (java.util.Properties)."""
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _escaped(key: str, value: str) -> str:
    """On one line. A backslash stays as it is and is read as the file's own, as in Pulsar's image."""
    escaped = value.replace("\r", "").replace("\n", "\\n")
    if _ends_open(escaped):
        raise ConfigurationError(
            f"the environment variable for {key} ends with a single backslash, which would take the next key of the "
            "file into its value: expected two for one"
        )
    try:
        escaped.encode()
    except UnicodeEncodeError as error:
        raise ConfigurationError(f"the environment variable for {key} is no UTF-8 text, as its file is") from error
    return escaped
