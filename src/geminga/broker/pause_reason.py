"""Why nothing is read from a connection now."""

from __future__ import annotations

from enum import IntFlag


class PauseReason(IntFlag):
    """Why nothing is read from a connection."""

    NONE = 0
    PENDING_PUBLISHES = 1
    PUBLISH_BUFFER = 2
    WRITE_BUFFER = 4
    PENDING_REQUESTS = 8
    COMMANDS_LEFT = 16
