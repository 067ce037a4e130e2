"""What a proxy says to a broker in a client's name: CONNECT, and answers to AUTH_CHALLENGE. Pure.

As in Apache Pulsar: the proxy shows credentials of its own; the role that it found for the client goes with them as
``original_principal``, and what the client brought as ``original_auth_data`` and ``original_auth_method`` where
``forwardAuthorizationCredentials`` says so. Where the proxy asks nobody who they are, none of the three is there.

Beyond Apache's, which makes everybody there the proxy: who brings credentials to a proxy that asks nobody has them
shown to the broker instead of the proxy's, and is who the broker says; the proxy's own are for who brings none. But a
certificate (``tls``) was shown to the proxy, and TLS to the broker would show the proxy's for it.
"""

from __future__ import annotations

from typing import NamedTuple

from geminga.broker.access.core.handshake import REFRESH, Credentials
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import PROTOCOL_VERSION, encode_command


class Caller(NamedTuple):
    """For whom the proxy asks."""

    #: The client's own version and protocol.
    client_version: str
    protocol_version: int
    flags: pb.FeatureFlags
    #: Empty: nobody was asked.
    role: str = ""
    #: What it brought; None: it is not passed on.
    credentials: Credentials | None = None
    #: The same where the proxy asks nobody: it takes the place of the proxy's own. None: there is nothing.
    instead: Credentials | None = None


def brought_instead(credentials: Credentials) -> Credentials | None:
    """What is shown to brokers of who is not asked here; None: it brings nothing that could be."""
    return credentials if credentials.data and credentials.method not in ("", "none", "tls") else None


def connect_frame(caller: Caller, method: str, data: bytes, proxy_version: str, *, is_relayed: bool) -> bytes:
    """CONNECT, with the proxy's credentials of this moment (``method`` empty: none).

    ``is_relayed``: the client itself will be at the other end, so that its version and what it can do are told; else
    the proxy is, which answers challenges, but for credentials that are not its own.
    """
    connect = pb.CommandConnect(
        client_version=caller.client_version,
        protocol_version=min(caller.protocol_version, PROTOCOL_VERSION),
        proxy_version=proxy_version,
    )
    if is_relayed:
        connect.feature_flags.CopyFrom(caller.flags)
    else:
        connect.feature_flags.supports_auth_refresh = caller.instead is None
        connect.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
    if caller.instead is not None:
        method, data = caller.instead.method, caller.instead.data
    if method:
        connect.auth_method_name, connect.auth_data = method, data
    if caller.role:
        connect.original_principal = caller.role
    if caller.credentials is not None:
        connect.original_auth_data = caller.credentials.data.decode("utf-8", "replace")
        connect.original_auth_method = caller.credentials.method
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.CONNECT, connect=connect))


def is_about_caller(challenge: pb.CommandAuthChallenge, caller: Caller) -> bool:
    """Whether the broker asks for new credentials of the one the proxy speaks for, not for more of the proxy's."""
    return caller.credentials is not None and challenge.challenge.auth_data == REFRESH


def response_frame(client_version: str, method: str, data: bytes) -> bytes:
    """AUTH_RESPONSE."""
    response = pb.CommandAuthResponse(
        client_version=client_version,
        protocol_version=PROTOCOL_VERSION,
        response=pb.AuthData(auth_method_name=method, auth_data=data),
    )
    return encode_command(pb.BaseCommand(type=pb.BaseCommand.AUTH_RESPONSE, authResponse=response))
