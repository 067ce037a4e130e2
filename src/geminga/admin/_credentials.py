"""Who asks: the client's ways to authenticate, in requests of HTTP."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import NamedTuple, Protocol

from geminga.model.http_credentials import credential_headers


class Authentication(Protocol):
    """``AuthenticationToken``, ``-Basic``, ``-TLS`` or ``-Oauth2`` of :mod:`geminga.client`, or one of one's own."""

    @property
    def method_name(self) -> str:
        """Pulsar's name of the method."""
        ...

    def data(self) -> object:
        """Bytes of this moment; asked for with each request."""
        ...


class Said(NamedTuple):
    """What requests are made with."""

    headers: Callable[[], Mapping[str, str]]
    tls: ssl.SSLContext | None


def said_by(
    authentication: Authentication, headers: Callable[[], Mapping[str, str]] | None, tls: ssl.SSLContext | None
) -> Said:
    """Headers and TLS of who asks; ``headers`` of one's own stay beside them.

    A certificate is shown by a context that is made here; one that is given must have it already. Raises ValueError for
    files that are not a certificate and its key.
    """

    def with_credentials() -> Mapping[str, str]:
        return {**({} if headers is None else headers()), **_headers(authentication)}

    certificate = getattr(authentication, "certificate_path", "")
    if authentication.method_name == "tls" and certificate and tls is None:
        private_key = getattr(authentication, "private_key_path", "")
        tls = ssl.create_default_context()
        try:
            tls.load_cert_chain(certificate, private_key or None, password=_no_password)
        except (OSError, ssl.SSLError) as error:
            reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
            raise ValueError(
                f"certificate {certificate}, key {private_key}: {reason}; expected PEM files that belong together, "
                "the key without password"
            ) from None
    return Said(with_credentials, tls)


def _headers(authentication: Authentication) -> dict[str, str]:
    if authentication.method_name == "tls":
        return {}
    data = authentication.data()
    if isinstance(data, bytes):
        return credential_headers(authentication.method_name, data)
    if isinstance(data, Coroutine):
        data.close()
    raise ValueError("a token that is awaited can not be used for HTTP: expected a text or a function")


def _no_password() -> bytes:
    """Without it OpenSSL would ask at the terminal."""
    return b""
