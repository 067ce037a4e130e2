"""What holds where nothing is said."""

from __future__ import annotations

from typing import Final

DEFAULT_URL: Final = "http://localhost:8080"
#: Seconds for connecting, and between two parts of an answer.
TIMEOUT_S: Final = 30.0
