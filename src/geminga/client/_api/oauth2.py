"""OAuth 2.0 client credentials: the issuer gives a token, which is asked for anew before it expires.

The flow of RFC 6749, section 4.4, with the token endpoint from the issuer's discovery document (OpenID Connect
Discovery 1.0): two requests for the first token, one for each further one. Parameters and the file of credentials have
the names of Pulsar's clients, those of Java (``issuerUrl``, ``privateKey``) and those of C++ and Python
(``issuer_url``, ``private_key``). Nothing of it is shown in ``repr`` or in an error.
"""

from __future__ import annotations

import base64
import binascii
import json
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import unquote_to_bytes, urlencode

from geminga.client._api.errors import ErrorGettingAuthenticationData, InvalidConfiguration
from geminga.runtime import SystemClock
from geminga.runtime.local_file import path_of_url, read_local_file

#: Seconds for an answer of the issuer.
ANSWER_S_MAX: Final = 10.0
#: A larger answer is no token.
ANSWER_BYTES_MAX: Final = 1 << 20
#: Of its life a token is used; the rest is for getting the next one.
USED_SHARE: Final = 0.9
#: Of its life a token is new: connections that are asked at the same time show the same one.
NEW_SHARE: Final = 0.1
#: Assumed of a token whose issuer does not say how long it lives, s.
LIFE_S_ASSUMED: Final = 300.0
#: Longest life that is believed, s, some 30 years: an infinite one, which JSON can be read as, would never be renewed.
LIFE_S_MAX: Final = 1_000_000_000
_GRANT: Final = "client_credentials"
_EXPECTED: Final = 'JSON as {"issuer_url": ..., "private_key": "file:///path", "audience": ..., "scope": ...}'


class Flow(NamedTuple):
    """What is asked of whom."""

    issuer_url: str
    client_id: str
    client_secret: str
    audience: str = ""
    scope: str = ""
    #: A PEM file of certificates to trust; empty: the system's.
    trust: str = ""

    def __repr__(self) -> str:
        return f"Flow({self.issuer_url!r}, {self.client_id!r})"  # without the secret


def parse_flow(text: str) -> Flow:
    """The flow of a parameter string; raises InvalidConfiguration, which repeats nothing of it."""
    given = _object(text, "auth_params_string")
    kind = _text(given, "type") or _GRANT
    if kind != _GRANT:
        raise InvalidConfiguration(f"OAuth 2.0: the flow {kind!r} is not built; expected {_GRANT}")
    if place := _text(given, "private_key", "privateKey"):
        given = {**_object(_key_text(place), "private_key"), **given}
    issuer = _text(given, "issuer_url", "issuerUrl")
    client_id, secret = _text(given, "client_id", "clientId"), _text(given, "client_secret", "clientSecret")
    if not issuer.lower().startswith(("http://", "https://")):
        raise InvalidConfiguration("OAuth 2.0: issuer_url is not the http or https URL of an issuer")
    if not client_id or not secret:
        raise InvalidConfiguration(f"OAuth 2.0: client_id and client_secret are needed; expected {_EXPECTED}")
    trust = _text(given, "tls_cert_file_path", "trustCertsFilePath")
    return Flow(issuer.rstrip("/"), client_id, secret, _text(given, "audience"), _text(given, "scope"), trust)


class AuthenticationOauth2:
    """Client credentials of OAuth 2.0, under the official client's name and parameter string.

    ``AuthenticationOauth2('{"issuer_url": "https://...", "private_key": "file:///credentials.json"}')``
    """

    __slots__ = ("_clock", "_endpoint", "_flow", "_good_until_s", "_new_until_s", "_token")

    method_name = "token"

    def __init__(self, auth_params_string: str) -> None:
        """Reads the file of credentials; raises InvalidConfiguration. The issuer is asked when a token is needed."""
        self._flow = parse_flow(auth_params_string)
        self._clock = SystemClock()
        #: Where tokens are given; found out with the first one.
        self._endpoint = ""
        self._token = b""
        #: Until when it is used, and until when it counts as new; monotonic.
        self._good_until_s = 0.0
        self._new_until_s = 0.0

    def __repr__(self) -> str:
        return f"AuthenticationOauth2({self._flow!r})"

    @property
    def is_blocking(self) -> bool:
        """Whether :meth:`data` would ask the issuer now, which waits: it belongs on a thread then."""
        return not self._token or self._clock.monotonic() >= self._good_until_s

    def renew(self) -> None:
        """A broker asks for another one: the token at hand is shown no more, unless it is new."""
        if self._clock.monotonic() >= self._new_until_s:
            self._good_until_s = 0.0

    def data(self) -> bytes:
        """A token that is good for a while; raises ErrorGettingAuthenticationData."""
        if self.is_blocking:
            self._fetch()
        return self._token

    def _fetch(self) -> None:
        flow = self._flow
        begin_s = self._clock.monotonic()
        if not self._endpoint:
            found = _asked(f"{flow.issuer_url}/.well-known/openid-configuration", None, flow)
            endpoint = found.get("token_endpoint")
            if not isinstance(endpoint, str) or not endpoint.lower().startswith(("http://", "https://")):
                raise ErrorGettingAuthenticationData(f"{flow.issuer_url}: its discovery document has no token_endpoint")
            self._endpoint = endpoint
        form = {"grant_type": _GRANT, "client_id": flow.client_id, "client_secret": flow.client_secret}
        form |= {key: value for key, value in (("audience", flow.audience), ("scope", flow.scope)) if value}
        try:
            answer = _asked(self._endpoint, urlencode(form).encode(), flow)
        except ErrorGettingAuthenticationData:
            # It may have moved: the issuer is asked again.
            self._endpoint = ""
            raise
        token, life_s = answer.get("access_token"), answer.get("expires_in", LIFE_S_ASSUMED)
        if not isinstance(token, str) or not token:
            raise ErrorGettingAuthenticationData(f"{self._endpoint}: an answer without access_token")
        if isinstance(life_s, bool) or not isinstance(life_s, int | float) or not 0 < life_s <= LIFE_S_MAX:
            raise ErrorGettingAuthenticationData(
                f"{self._endpoint}: expires_in is no number of seconds above 0, of at most {LIFE_S_MAX}"
            )
        self._token = token.encode()
        self._good_until_s = begin_s + USED_SHARE * life_s
        self._new_until_s = begin_s + NEW_SHARE * life_s


def _asked(url: str, form: bytes | None, flow: Flow) -> Mapping[str, object]:
    """The JSON object that answers; raises ErrorGettingAuthenticationData."""
    # Loaded by who asks.
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import Request

    from geminga.runtime.sockets.limited_http import limited_opener, time_left

    try:
        try:
            request = Request(url, form, {"Accept": "application/json"})
            context = ssl.create_default_context(cafile=flow.trust or None) if url.startswith("https:") else None
            with limited_opener(time_left(ANSWER_S_MAX), context).open(request) as response:
                text = response.read(ANSWER_BYTES_MAX + 1)
        except HTTPError as error:
            with error:
                reason = _reason(error.read(ANSWER_BYTES_MAX))
            raise ErrorGettingAuthenticationData(f"{url}: {error.code} {reason or error.reason}") from None
    except (OSError, ValueError, HTTPException) as error:  # ValueError: of what is no URL, and no name of a host
        raise ErrorGettingAuthenticationData(f"{url}: {str(error) or type(error).__name__}") from None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise ErrorGettingAuthenticationData(f"{url}: the answer is no JSON object")
    return found


def _reason(text: bytes) -> str:
    """``error`` and ``error_description`` of RFC 6749, section 5.2."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    words = [found.get("error"), found.get("error_description")] if isinstance(found, dict) else []
    return ": ".join(word for word in words if isinstance(word, str))


def _object(text: str | bytes, what: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InvalidConfiguration(f"OAuth 2.0: {what} is no JSON object; expected {_EXPECTED}")
    return found


def _text(given: Mapping[str, object], *names: str) -> str:
    for name in names:
        value = given.get(name)
        if isinstance(value, str) and value:
            return value
    return ""


def _key_text(place: str) -> bytes:
    """What stands at ``private_key``: a path, ``file:`` and ``data:`` URLs; raises InvalidConfiguration."""
    if place.startswith("data:"):
        head, separator, body = place.partition(",")
        try:
            if not separator:
                raise ValueError
            return base64.b64decode(body, validate=True) if head.endswith(";base64") else unquote_to_bytes(body)
        except (ValueError, binascii.Error):
            raise InvalidConfiguration("OAuth 2.0: private_key begins with data: and is no data URL") from None
    path = path_of_url(place) if place.startswith("file:") else place
    try:
        return read_local_file(path)
    except OSError as error:
        raise InvalidConfiguration(f"OAuth 2.0: private_key={path}: {error.strerror or error}") from None
