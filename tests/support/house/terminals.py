"""Standard streams that are terminals, or are not."""

from __future__ import annotations

import io


class Stream(io.StringIO):
    def __init__(self, text: str = "", *, is_terminal: bool) -> None:
        super().__init__(text)
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal
