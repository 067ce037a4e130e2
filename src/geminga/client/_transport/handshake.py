"""What a client says about itself: CONNECT, and the answer to AUTH_CHALLENGE; and who else may listen there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import (
    AuthenticationError,
    ConnectError,
    ErrorGettingAuthenticationData,
    UnsupportedVersionError,
    WrongProtocol,
)
from geminga.runtime import Raised, attempt
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PROTOCOL_VERSION, encode_command
from geminga.wire.pulsar.foreign import Protocol, spoken_in

#: Errors of a handshake that say more than that there is no connection.
TOLD_AT_CONNECT: Final = (AuthenticationError, ErrorGettingAuthenticationData, ConnectError, UnsupportedVersionError)
CLIENT_VERSION: Final = "geminga-python-0.1.0"


@dataclass(frozen=True, slots=True)
class Handshake:
    """The two commands of one connection, as frames."""

    authentication: Authentication | None
    #: ``host:port`` of the broker behind a proxy; empty: none.
    proxy_to_broker_url: str
    #: Told behind the version; empty: nothing.
    description: str

    def connect(self) -> bytes:
        """CONNECT; raises ErrorGettingAuthenticationData."""
        connect = pb.CommandConnect(
            client_version=self._client_version,
            protocol_version=PROTOCOL_VERSION,
            feature_flags=pb.FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_partial_producer=True,
                supports_topic_watchers=True,
            ),
        )
        if self.proxy_to_broker_url:
            connect.proxy_to_broker_url = self.proxy_to_broker_url
        if self.authentication is not None:
            connect.auth_method_name, connect.auth_data = self._proof(self.authentication)
        return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))

    def answer_challenge(self) -> bytes:
        """AUTH_RESPONSE; raises AuthenticationError if there is nothing to answer, ErrorGettingAuthenticationData."""
        if self.authentication is None:
            raise AuthenticationError("the broker asks for authentication, and the client has none")
        name, data = self._proof(self.authentication)
        response = pb.CommandAuthResponse(
            client_version=self._client_version,
            protocol_version=PROTOCOL_VERSION,
            response=pb.AuthData(auth_method_name=name, auth_data=data),
        )
        return encode_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=response))

    @property
    def _client_version(self) -> str:
        return f"{CLIENT_VERSION}-{self.description}" if self.description else CLIENT_VERSION

    @staticmethod
    def _proof(authentication: Authentication) -> tuple[str, bytes]:
        found = attempt(lambda: (authentication.method_name, authentication.data()))
        if isinstance(found, Raised):
            raise ErrorGettingAuthenticationData(str(found)) from found.error
        name, data = found
        if not (isinstance(name, str) and isinstance(data, bytes)):
            raise ErrorGettingAuthenticationData(
                f"expected text as method_name and bytes as data(), not {type(name).__name__} and {type(data).__name__}"
            )
        return name, data


def wrong_protocol(url: str, head: bytes) -> WrongProtocol | None:
    """What the first bytes from ``url`` say, if they are of another protocol."""
    spoken = spoken_in(head)
    if spoken is Protocol.HTTP:
        return WrongProtocol(
            f"{url} speaks HTTP: the service URL is that of the binary protocol, pulsar://HOST:6650 as a rule"
        )
    if spoken is Protocol.TLS:
        return WrongProtocol(f"{url} speaks TLS: the service URL begins with pulsar+ssl://, or names a port without it")
    return None


def lost_in_handshake(url: str, head: bytes, text: str) -> ConnectError:
    """Why there is no answer to CONNECT; ``head`` are the bytes that came and are no frame."""
    hint = "before it said anything; a port of HTTP or TLS? With TLS the service URL is pulsar+ssl://"
    return wrong_protocol(url, head) or ConnectError(f"{text}, {hint}")
