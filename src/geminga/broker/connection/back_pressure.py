"""Limits of one connection, each with its reason."""

from __future__ import annotations

from typing import Final

#: Bytes in the transport's write buffer at which dispatchers are told to stop, and to go on.
WRITE_BUFFER_HIGH_BYTES: Final = 512 * 1024
WRITE_BUFFER_LOW_BYTES: Final = 128 * 1024
#: Bytes in the write buffer from which answers that a client does not take are counted with those of all clients.
WRITE_BUFFER_COUNTED_BYTES: Final = 64 * 1024
#: Bytes in the write buffer at which reading stops too: the client takes nothing.
WRITE_BUFFER_STOP_READING_BYTES: Final = 8 * 1024 * 1024
#: Requests of a connection that are worked on at the same time; above it nothing more is read until half are done.
REQUESTS_PENDING_MAX: Final = 1000
#: Commands of a connection handled in one turn of the loop. More than a full read holds of 100-byte SENDs, so that
#: those stay one append; the same under simulation, where no time passes within a turn.
TURN_COMMANDS_MAX: Final = 2048
#: Seconds after which a connection's turn ends behind the command at hand: an ACK can cost ten times what a SEND does,
#: so that a count alone would either hold the loop or break up batches.
TURN_S_MAX: Final = 0.005
#: The largest frame before CONNECT succeeded, beside FRAME_PADDING_BYTES: tokens and tickets fit, messages do not.
HANDSHAKE_BYTES_MAX: Final = 64 * 1024
#: An ACK or REDELIVER of more bytes takes several turns; official clients send at most 1,000 ids, about 14 KiB.
LONG_COMMAND_BYTES: Final = 16 * 1024
#: The largest command, bytes, but for ACK and REDELIVER, which take several turns: what can be decoded in one.
COMMAND_BYTES_MAX: Final = 1024 * 1024
