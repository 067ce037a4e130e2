"""What an authentication says in a request of HTTP."""

from __future__ import annotations

from collections.abc import Coroutine

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import InvalidConfiguration
from geminga.model.http_credentials import credential_headers


def http_headers(authentication: Authentication | None) -> dict[str, str]:
    """Headers of one request; may ask an issuer, which blocks. Raises what the authentication raises.

    A certificate says it in the handshake of TLS, and here nothing. Raises InvalidConfiguration for a coroutine.
    """
    if authentication is None or authentication.method_name == "tls":
        return {}
    data = authentication.data()
    if not isinstance(data, bytes):
        if isinstance(data, Coroutine):
            data.close()
        raise InvalidConfiguration("a token that is awaited can not be used for HTTP: expected a text or a function")
    return headers_of(authentication, data)


def headers_of(authentication: Authentication, data: bytes) -> dict[str, str]:
    """The same, given the data of this moment. Raises InvalidConfiguration for what can not stand in a header."""
    try:
        return credential_headers(authentication.method_name, data)
    except ValueError as error:
        raise InvalidConfiguration(str(error)) from None
