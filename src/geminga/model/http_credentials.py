"""How credentials stand in a request of HTTP, by Pulsar's names of methods."""

from __future__ import annotations

import base64
import re
from typing import Final

#: The header with the name of the method, where the form of ``Authorization`` does not tell it.
METHOD_HEADER: Final = "X-Pulsar-Auth-Method-Name"
#: Control characters, and what a header loses at its ends.
_UNSAYABLE: Final = re.compile(r"[\x00-\x1f\x7f]|^ | $")


def credential_headers(method: str, data: bytes) -> dict[str, str]:
    """Headers for ``data`` of ``method``; none for ``tls``, whose handshake says it.

    Raises ValueError, which repeats nothing of them, for what can not stand in a header: what writes it would show it.

    >>> credential_headers("token", b"abc")
    {'Authorization': 'Bearer abc'}
    """
    if method == "tls":
        return {}
    if method == "basic":
        return {"Authorization": f"Basic {base64.b64encode(data).decode()}", METHOD_HEADER: method}
    text = data.decode("latin-1")
    if _UNSAYABLE.search(text) or (method == "token" and not text.isascii()):
        raise ValueError(
            f"the credentials of the method {method} can not stand in a header of HTTP: a line's end, a blank at an "
            "end, or another character that has no place there; expected one line, such as a token alone"
        )
    return {"Authorization": f"Bearer {text}"} if method == "token" else {"Authorization": text, METHOD_HEADER: method}
