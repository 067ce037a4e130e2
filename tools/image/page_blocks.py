"""The blocks of code of a page of documentation, as a reader would use them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

_BLOCK: Final = re.compile(r"^```(sh|yaml)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
#: Of a block that was carried out before this could run.
_DONE_BEFORE: Final = "apt-get "


class Block(NamedTuple):
    """One of them."""

    kind: str
    text: str
    #: Of the page, for messages.
    line: int

    @property
    def file(self) -> str:
        """The name in its first line, a comment; raises ValueError without one."""
        first = self.text.partition("\n")[0]
        name = first.removeprefix("# ")
        if name == first or not name or "/" in name:
            raise ValueError(f"line {self.line}: {first!r}: expected '# FILE', the name that the block is saved under")
        return name


def blocks(page: str) -> list[Block]:
    """Shell and YAML of ``page``, in order; without what installs packages of the machine."""
    found = [Block(match[1], match[2], page.count("\n", 0, match.start()) + 1) for match in _BLOCK.finditer(page)]
    return [block for block in found if not block.text.startswith(_DONE_BEFORE)]
