"""What a command says to people on standard error: one paragraph, never a traceback."""

from __future__ import annotations

import sys
from typing import Final

#: Columns that paragraphs are wrapped to on a terminal.
PARAGRAPH_COLUMNS: Final = 100


def print_paragraph(sentence: str) -> None:
    """``geminga: sentence`` on standard error: wrapped on a terminal, else one line, which can be searched."""
    text = " ".join(f"geminga: {sentence}".split())
    if sys.stderr.isatty():
        import textwrap

        text = textwrap.fill(text, PARAGRAPH_COLUMNS, break_long_words=False, break_on_hyphens=False)
    print(text, file=sys.stderr, flush=True)
