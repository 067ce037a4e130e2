"""What a proxy says to a broker in a client's name: CONNECT, and answers to AUTH_CHALLENGE. Pure.

As in Apache Pulsar: the proxy shows credentials of its own; the role that it found for the client goes with them as
``original_principal``, and what the client brought as ``original_auth_data`` and ``original_auth_method`` where
``forwardAuthorizationCredentials`` says so. Where the proxy asks nobody who they are, none of the three is there.
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


def connect_frame(caller: Caller, method: str, data: bytes, proxy_version: str, *, is_relayed: bool) -> bytes:
    """CONNECT, with the proxy's credentials of this moment (``method`` empty: none).

    ``is_relayed``: the client itself will be at the other end, so that its version and what it can do are told; else
    the proxy is, which answers challenges.
    """
    connect = pb.CommandConnect(
        client_version=caller.client_version,
        protocol_version=min(caller.protocol_version, PROTOCOL_VERSION),
        proxy_version=proxy_version,
    )
    if is_relayed:
        connect.feature_flags.CopyFrom(caller.flags)
    else:
        connect.feature_flags.supports_auth_refresh = True
        connect.feature_flags.supports_get_partitioned_metadata_without_auto_creation = True
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
