"""What a command says to people on standard error: one paragraph, never a traceback; and the streams for that."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

from geminga.app.lifecycle.terminal_text import shown_on

#: Columns that paragraphs are wrapped to on a terminal.
PARAGRAPH_COLUMNS: Final = 100


_as_line: Callable[[str], str] | None = None


def write_paragraphs_as(line: Callable[[str], str] | None) -> None:
    """Have paragraphs written as lines of another form; None: for people again."""
    global _as_line
    _as_line = line


def shown_paragraph(sentence: str) -> str:
    """``geminga: sentence`` on one line, or the line of that form."""
    one = " ".join(sentence.split())
    return f"geminga: {one}" if _as_line is None else _as_line(one)


def print_paragraph(sentence: str) -> None:
    """:func:`shown_paragraph` on standard error: wrapped on a terminal, else one line, which can be searched."""
    text = shown_on(sys.stderr, shown_paragraph(sentence))
    if _as_line is None and sys.stderr.isatty():
        import textwrap

        text = textwrap.fill(text, PARAGRAPH_COLUMNS, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)


def no_text(error: UnicodeEncodeError) -> str:
    """What is said of an argument that is no text in UTF-8, wherever that was noticed; else the error itself."""
    wrong = error.object[error.start : error.end]
    if not any("\ud800" <= character <= "\udfff" for character in wrong):
        return str(error)
    of = next((word for word in sys.argv[1:] if wrong in word), error.object)
    return f"{os.fsencode(of)!r}: expected text in UTF-8".removeprefix("b")


def give_up_output() -> None:
    """Standard output can not be written to: what is left in its buffer is not tried again at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def open_closed_streams() -> None:
    """Give standard streams that were closed at the start (``<&-``, as some schedulers do) the null device.

    Their numbers would go to the next sockets and files, which the event loop does not bear.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            # The lowest free number is given, and those below are open by now; programs that are started get it, too.
            descriptor = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(descriptor, True)
            stream = open(descriptor, "r" if number == 0 else "w", encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
