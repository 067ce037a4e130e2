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
    #: A command is carried out in several turns.
    COMMAND_UNDER_WAY = 32
    #: The rest of a large frame waits for room.
    FRAME_BUFFER = 64
    #: Somebody publishes on it faster than a rate allows.
    PUBLISH_RATE = 128
