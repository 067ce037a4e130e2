"""What differs on purpose between the two, of what ``pulsar-admin`` prints."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.comparing import Meant

MEANT: Final[tuple[Meant, ...]] = ()
