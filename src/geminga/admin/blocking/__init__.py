"""The administration of brokers, for programs that wait: the names and calls of :mod:`geminga.admin`, without await."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from geminga.admin.defaults import DEFAULT_URL, TIMEOUT_S
from geminga.model.late_names import late_names

if TYPE_CHECKING:
    import ssl

    from geminga.admin._credentials import Authentication
    from geminga.admin.blocking._client import AdminClient

__all__ = ["AdminClient", "connect"]


def connect(
    url: str = DEFAULT_URL,
    *,
    timeout_s: float = TIMEOUT_S,
    headers: Callable[[], Mapping[str, str]] | None = None,
    tls: ssl.SSLContext | None = None,
    authentication: Authentication | None = None,
) -> AdminClient:
    """See :func:`geminga.admin.connect`; any number of threads may use it."""
    # The calls are many, and whoever asks for their rows alone needs none of them.
    from geminga.admin.blocking._client import AdminClient

    if authentication is not None:
        from geminga.admin._credentials import said_by

        headers, tls = said_by(authentication, headers, tls)
    return AdminClient(url, timeout_s=timeout_s, headers=headers, tls=tls)


# With its first use.
__getattr__ = late_names(
    __name__,
    {
        "AdminClient": "geminga.admin.blocking._client",
    },
)
