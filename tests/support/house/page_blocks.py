"""The blocks of code of a page of the documentation, as one program of bash. Pure."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

_FENCE: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: A command that is meant to fail, and what it says then.
_REFUSED: Final = re.compile(r"^(?P<command>[^#\n]+?)  # refused: (?P<said>.+)$")
#: Kinds of blocks that are run.
RUN: Final = ("sh", "python")
#: Kinds that show something.
SHOWN: Final = ("ini", "json", "text")


class Block(NamedTuple):
    kind: str
    text: str


def blocks_of(page: str) -> list[Block]:
    """All blocks, in order; the kind is what stands behind the fence, empty where nothing does."""
    return [Block(*found.groups()) for found in _FENCE.finditer(page)]


def program_of(blocks: list[Block], values: Mapping[str, str]) -> str:
    """What runs ``blocks`` one after the other and ends with the first that fails, saying which it was.

    ``values``: words of the page -> what stands in their places. A line with ``# refused: TEXT`` must fail and say so.
    """
    lines = ["set -euo pipefail"]
    for number, block in enumerate(blocks, 1):
        if block.kind not in RUN:
            continue
        text = block.text
        for word, value in values.items():
            text = re.sub(rf"(?<!\d){re.escape(word)}(?!\d)", value, text)
        lines.append(f"echo '== block {number}'")
        if block.kind == "python":
            lines.append(f"{shlex.quote(sys.executable)} -c {shlex.quote(text)}")
        else:
            lines += [_line_of(line) for line in text.splitlines()]
    return "\n".join([*lines, "echo '== the end'", ""])


def _line_of(line: str) -> str:
    found = _REFUSED.match(line)
    if found is None:
        return line
    said = shlex.quote(found["said"])
    return (
        f"if ({found['command']}) > refused 2>&1; then echo 'not refused:' {shlex.quote(line)} >&2; exit 1; fi\n"
        f"grep -qF {said} refused || {{ cat refused >&2; exit 1; }}"
    )
