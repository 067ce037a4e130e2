"""What a client says about itself: CONNECT, and the answer to AUTH_CHALLENGE; and who else may listen there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from geminga.client._api.authentication import Authentication
from geminga.client._api.errors import (
    AuthenticationError,
    ConnectError,
    ErrorGettingAuthenticationData,
    PulsarException,
    UnsupportedVersionError,
    WrongProtocol,
)
from geminga.runtime import Raised, Threads, attempt, attempt_await, spawn
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PROTOCOL_VERSION, encode_command
from geminga.wire.pulsar.foreign import Protocol, spoken_in

#: Errors of a handshake that say more than that there is no connection.
TOLD_AT_CONNECT: Final = (AuthenticationError, ErrorGettingAuthenticationData, ConnectError, UnsupportedVersionError)
CLIENT_VERSION: Final = "geminga-python-0.1.0"
#: Threads lane of credentials that must be asked for.
AUTHENTICATION_LANE: Final = "authentication"

#: A frame, or what gives it once the credentials are there.
Frame: TypeAlias = bytes | Awaitable[bytes]


@dataclass(frozen=True, slots=True)
class Handshake:
    """The two commands of one connection, as frames."""

    authentication: Authentication | None
    #: ``host:port`` of the broker behind a proxy; empty: none.
    proxy_to_broker_url: str
    #: Told behind the version; empty: nothing.
    description: str
    #: Where credentials are asked for that take a while; None: they are asked for at once.
    threads: Threads | None = None

    def connect(self) -> Frame:
        """CONNECT; raises ErrorGettingAuthenticationData."""
        connect = pb.CommandConnect(
            client_version=self._client_version,
            protocol_version=PROTOCOL_VERSION,
            proxy_to_broker_url=self.proxy_to_broker_url or None,
            feature_flags=pb.FeatureFlags(
                supports_auth_refresh=True,
                supports_broker_entry_metadata=True,
                supports_partial_producer=True,
                # A replicator's entries count by where they come from, at a target of Apache's too.
                supports_repl_dedup_by_lid_and_eid=True,
                supports_topic_watchers=True,
                # What may be prefetched is bounded in bytes, by the size of the last messages.
                geminga_permits_are_messages=True,
            ),
        )

        def with_proof(name: str, data: bytes) -> bytes:
            connect.auth_method_name, connect.auth_data = name, data
            return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))

        if self.authentication is not None:
            return self._proven(self.authentication, with_proof)
        return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))

    def answer_challenge(self) -> Frame:
        """AUTH_RESPONSE; raises AuthenticationError if there is nothing to answer, ErrorGettingAuthenticationData."""
        if self.authentication is None:
            raise AuthenticationError("the broker asks for authentication, and the client has none")
        renew = getattr(self.authentication, "renew", None)
        if renew is not None:
            renew()

        def with_proof(name: str, data: bytes) -> bytes:
            response = pb.CommandAuthResponse(
                client_version=self._client_version,
                protocol_version=PROTOCOL_VERSION,
                response=pb.AuthData(auth_method_name=name, auth_data=data),
            )
            return encode_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=response))

        return self._proven(self.authentication, with_proof)

    @property
    def _client_version(self) -> str:
        return f"{CLIENT_VERSION}-{self.description}" if self.description else CLIENT_VERSION

    def _proven(self, authentication: Authentication, frame: Callable[[str, bytes], bytes]) -> Frame:
        """``frame`` with the credentials of this moment, now or later; raises ErrorGettingAuthenticationData."""
        found = attempt(lambda: (authentication.method_name, self._data_of(authentication)))
        if isinstance(found, Raised):
            raise credentials_not_had(found)
        name, data = found
        if isinstance(data, Awaitable):
            return _proven_later(name, data, frame)
        return frame(*_checked(name, data))

    def _data_of(self, authentication: Authentication) -> bytes | Awaitable[bytes]:
        # What waits for somebody else, and says so, must not hold the loop.
        if self.threads is not None and getattr(authentication, "is_blocking", False):
            return self.threads.call(AUTHENTICATION_LANE, lambda: _at_once(authentication.data()))
        return authentication.data()


def _at_once(data: bytes | Awaitable[bytes]) -> bytes:
    if isinstance(data, Awaitable):
        raise ErrorGettingAuthenticationData("data() of credentials that are blocking gives bytes, not a coroutine")
    return data


async def _proven_later(name: str, data: Awaitable[bytes], frame: Callable[[str, bytes], bytes]) -> bytes:
    found = await attempt_await(data)
    if isinstance(found, Raised):
        raise credentials_not_had(found)
    return frame(*_checked(name, found))


def _checked(name: object, data: object) -> tuple[str, bytes]:
    if not (isinstance(name, str) and isinstance(data, bytes)):
        raise ErrorGettingAuthenticationData(
            f"expected text as method_name and bytes as data(), not {type(name).__name__} and {type(data).__name__}"
        )
    return name, data


def credentials_not_had(found: Raised) -> ErrorGettingAuthenticationData:
    """What whoever connects is told of credentials that raised instead."""
    if isinstance(found.error, ErrorGettingAuthenticationData):
        return found.error
    error = ErrorGettingAuthenticationData(str(found))
    error.__cause__ = found.error
    return error


def say(frame: Callable[[], Frame], write: Callable[[bytes], None], fail: Callable[[PulsarException], None]) -> None:
    """Write what ``frame`` makes, at once if it is there; ``fail`` is told why it is not."""
    try:
        made = frame()
    except PulsarException as error:
        fail(error)
        return
    if isinstance(made, bytes):
        write(made)
    else:
        spawn(_say_later(made, write, fail), name="credentials")


async def _say_later(
    frame: Awaitable[bytes], write: Callable[[bytes], None], fail: Callable[[PulsarException], None]
) -> None:
    try:
        write(await frame)
    except PulsarException as error:
        fail(error)


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
