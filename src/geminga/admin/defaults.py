"""What holds where nothing is said."""

from __future__ import annotations

from typing import Final

DEFAULT_URL: Final = "http://localhost:8080"
#: Seconds for connecting, until an answer begins, and between two parts of it, which has to come at 16 KiB/s or more.
TIMEOUT_S: Final = 30.0
