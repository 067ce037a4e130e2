"""How credentials stand in a request of HTTP, by Pulsar's names of methods."""

from __future__ import annotations

import base64
from typing import Final

#: The header with the name of the method, where the form of ``Authorization`` does not tell it.
METHOD_HEADER: Final = "X-Pulsar-Auth-Method-Name"


def credential_headers(method: str, data: bytes) -> dict[str, str]:
    """Headers for ``data`` of ``method``; none for ``tls``, whose handshake says it.

    >>> credential_headers("token", b"abc")
    {'Authorization': 'Bearer abc'}
    """
    if method == "tls":
        return {}
    if method == "token":
        return {"Authorization": f"Bearer {data.decode()}"}
    if method == "basic":
        return {"Authorization": f"Basic {base64.b64encode(data).decode()}", METHOD_HEADER: method}
    return {"Authorization": data.decode("latin-1"), METHOD_HEADER: method}
