"""The administration of brokers from Python: asynchronous here, blocking in :mod:`geminga.admin.blocking`.

::

    async with geminga.admin.connect("http://localhost:8080") as admin:
        await admin.namespaces.create("public/orders")
        kept = {"retentionTimeInMinutes": 60, "retentionSizeInMB": -1}
        await admin.namespace_policies.retention.set("public/orders", kept)
        stats = await admin.topics.stats("public/orders/new")

Each kind of thing is an attribute (``admin.topics``, ``admin.tenants``, ...), each request a method. Names are as
people write them (``orders``, ``persistent://tenant/namespace/orders``, ``tenant/namespace``); answers are JSON as
Python has it, in Pulsar's words; what is not set is None. Errors are :class:`AdminError` and what stands on it, by the
status of HTTP. It asks brokers of Apache Pulsar just as well. A client belongs to the loop it is first used on; a
blocking one is for any thread, and for forked children.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from geminga.admin.defaults import DEFAULT_URL, TIMEOUT_S
from geminga.admin.errors import (
    AdminError,
    ConflictError,
    ForbiddenError,
    NotAvailableError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
    UnreachableError,
)
from geminga.model.late_names import late_names

if TYPE_CHECKING:
    import ssl

    from geminga.admin._client import AdminClient
    from geminga.admin._credentials import Authentication

__all__ = [
    "AdminClient",
    "AdminError",
    "Authentication",
    "ConflictError",
    "ForbiddenError",
    "NotAvailableError",
    "NotBuiltError",
    "NotFoundError",
    "PreconditionFailedError",
    "UnauthorizedError",
    "UnreachableError",
    "connect",
]


def connect(
    url: str = DEFAULT_URL,
    *,
    timeout_s: float = TIMEOUT_S,
    headers: Callable[[], Mapping[str, str]] | None = None,
    tls: ssl.SSLContext | None = None,
    authentication: Authentication | None = None,
) -> AdminClient:
    """A client of the broker at ``url``, ``http://host:port`` or ``https://``; nothing is asked yet.

    ``timeout_s``: seconds for connecting, and between two parts of an answer. ``headers``: asked for with each request,
    such as ``Authorization``. ``tls``: how ``https`` is verified; None: by the system's authorities.
    ``authentication``: who asks, one of the client's (``geminga.client.AuthenticationToken``, ``authentication_from``),
    asked for its data with each request; a certificate is in ``tls``, if that is given. Raises ValueError.
    """
    # The calls are many, and whoever asks for their rows alone needs none of them.
    from geminga.admin._client import AdminClient

    if authentication is not None:
        from geminga.admin._credentials import said_by

        headers, tls = said_by(authentication, headers, tls)
    return AdminClient(url, timeout_s=timeout_s, headers=headers, tls=tls)


# With their first use.
__getattr__ = late_names(
    __name__,
    {
        "AdminClient": "geminga.admin._client",
        "Authentication": "geminga.admin._credentials",
    },
)
