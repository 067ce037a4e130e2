"""Where requests that came with TLS have the certificate that their client showed."""

from __future__ import annotations

from typing import Final

#: In the state of the request's scope: DER, verified by the handshake; not there: it showed none, or came without TLS.
CERTIFICATE_IN_STATE: Final = "certificate"
