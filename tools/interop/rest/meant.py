"""Where Geminga's answers differ on purpose: rows of "Answers of the admin REST" in ``docs/compatibility.md``."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.comparing import Meant

MEANT: Final = (
    Meant("an error's body", r"answer: (404|405|415|406)( <html>)? \| \1 .+"),
    Meant("a body that is no JSON, or of another shape", r"answer: 400 (<jackson>|<html>) \| 400 .+"),
)
