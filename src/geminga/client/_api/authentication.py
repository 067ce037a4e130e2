"""Who a client says it is: what goes into CONNECT and into answers to AUTH_CHALLENGE."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from inspect import iscoroutinefunction
from typing import Final, Protocol

from geminga.client._api.errors import ErrorGettingAuthenticationData, InvalidConfiguration
from geminga.client.rules.option_kinds import TEXT, Either, Function, problem, problem_of_type
from geminga.runtime.local_file import path_of_url, read_local_file


class Authentication(Protocol):
    """A way to authenticate; an object of one's own with these two members will do."""

    @property
    def method_name(self) -> str:
        """Pulsar's name of the method (``token``, ``basic``, ``tls``); empty for none."""
        ...

    def data(self) -> bytes | Awaitable[bytes]:
        """The data of this moment, or what they are awaited from; called for each connection and each challenge.

        An object whose member ``is_blocking`` is true is asked on a thread. One with a method ``renew`` is told by it
        that a broker asks for other credentials than those that it was shown.
        """
        ...


class AuthenticationToken:
    """A JSON web token, a file of it (``file:///path``), or a function or coroutine function that gives it now."""

    __slots__ = ("_token",)

    method_name = "token"

    def __init__(self, token: str | Callable[[], str] | Callable[[], Awaitable[str]]) -> None:
        """``token:`` before a text is left out, as in parameter strings. Raises InvalidConfiguration for others."""
        _check(problem_of_type("token", token, _TOKEN))
        self._token = token

    def __repr__(self) -> str:
        return "AuthenticationToken(...)"

    def data(self) -> bytes | Awaitable[bytes]:
        """The token; raises what the function raises, ErrorGettingAuthenticationData if it gives no text, OSError for
        the file."""
        if isinstance(self._token, str):
            if self._token.startswith("file:"):
                return read_local_file(path_of_url(self._token)).strip()
            return self._token.removeprefix("token:").encode()
        if iscoroutinefunction(self._token):
            return _encoded(self._token)
        token = self._token()
        return _encoded(lambda: token) if isinstance(token, Awaitable) else _bytes_of(token)


async def _encoded(give: Callable[[], Awaitable[str]]) -> bytes:
    return _bytes_of(await give())


def _bytes_of(token: str) -> bytes:
    if not isinstance(token, str):
        kind = type(token).__name__
        raise ErrorGettingAuthenticationData(f"the function that gives the token gave {kind}: expected text")
    return token.encode()


class AuthenticationBasic:
    """User name and password."""

    __slots__ = ("_data", "method_name")

    def __init__(
        self,
        username: str | None = None,
        password: str | None = None,
        method: str = "basic",
        auth_params_string: str = "",
    ) -> None:
        """``auth_params_string``: ``{"username": ..., "password": ...}`` instead of the two; InvalidConfiguration."""
        if auth_params_string:
            try:
                given = json.loads(auth_params_string)
                username, password = given["username"], given["password"]
                method = given.get("method", method)
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                raise InvalidConfiguration(
                    'auth_params_string: expected {"username": ..., "password": ...} as JSON'
                ) from error
        if username is None or password is None:
            raise InvalidConfiguration("basic authentication: a username and a password are needed")
        _check(problem("username", username, TEXT) or problem_of_type("password", password, TEXT))
        _check(problem("method", method, TEXT))
        self.method_name: str = method
        self._data = f"{username}:{password}".encode()

    def __repr__(self) -> str:
        return "AuthenticationBasic(...)"

    def data(self) -> bytes:
        """``username:password``."""
        return self._data


class AuthenticationTLS:
    """The client's certificate: whoever holds the private key is who the certificate names."""

    __slots__ = ("certificate_path", "private_key_path")

    method_name = "tls"

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        """Paths of PEM files; read when a connection is made. Raises InvalidConfiguration for what is no text."""
        _check(problem("certificate_path", certificate_path, TEXT))
        _check(problem("private_key_path", private_key_path, TEXT))
        self.certificate_path = certificate_path
        self.private_key_path = private_key_path

    def __repr__(self) -> str:
        return f"AuthenticationTLS({self.certificate_path!r}, {self.private_key_path!r})"

    def data(self) -> bytes:
        """Nothing: the handshake of TLS said it all."""
        return b""


def _check(wrong: str | None) -> None:
    if wrong is not None:
        raise InvalidConfiguration(wrong)


_TOKEN: Final = Either(TEXT, Function("a function that gives it"))
