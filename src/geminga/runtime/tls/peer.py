"""Who is at the other end of a connection with TLS."""

from __future__ import annotations

import asyncio


def peer_certificate(transport: asyncio.BaseTransport) -> bytes | None:
    """The certificate that the peer showed, which the handshake verified, as DER; None: it showed none, or no TLS."""
    connection = transport.get_extra_info("ssl_object")
    if connection is None:
        return None
    found: bytes | None = connection.getpeercert(binary_form=True)
    return found
