"""What no text for a client may have in it: how storage is made, where it lies, what our code is called."""

from __future__ import annotations

import re
from collections.abc import Iterator

from google.protobuf.message import Message

#: Ledgers, bookies, nodes of metadata, files, addresses, names of Python's.
LEAKS = re.compile(
    r"\bledgers?\b[\s#:-]*\d|\bbookie|\bmetadata node\b|\bmanaged[ -]ledgers?\b"
    r"|(?:^|\s)/(?!(?:admin|lookup|metrics|status)\b)\w+/[\w./-]+|\.(?:py|log|txn|sqlite)\b"
    r"|Traceback|\b[A-Z]\w+(?:Error|Exception)\b|\bErrno\b|<[\w.]+ object at|\b0x[0-9a-f]{9,}"
    r"|\b\d{1,3}(?:\.\d{1,3}){3}:\d+"
)
_TEXTS = frozenset(("message", "error_message"))


def texts_of(command: Message) -> Iterator[str]:
    """The texts of an answer that say what is wrong."""
    for field, value in command.ListFields():
        if isinstance(value, Message):
            yield from texts_of(value)
        elif field.name in _TEXTS and isinstance(value, str):
            yield value


def leaks_of(command: Message) -> list[str]:
    """Those that tell too much."""
    return [text for text in texts_of(command) if LEAKS.search(text)]
