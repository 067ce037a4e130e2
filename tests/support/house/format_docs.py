"""Worked examples out of ``docs/formats``, so that tests hold code and documentation together."""

from __future__ import annotations

import re

from support.house.source_tree import ROOT


def documented_bytes(name: str) -> bytes:
    """The bytes of the hex dump in ``docs/formats/<name>.md``."""
    text = (ROOT / "docs" / "formats" / f"{name}.md").read_text(encoding="utf-8")
    lines = re.findall(r"^[0-9a-f]{4}  ((?:[0-9a-f]{2} ?)+)$", text, re.MULTILINE)
    return bytes.fromhex("".join(lines))
