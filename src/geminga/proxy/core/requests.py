"""Requests of a client that brokers answer through the proxy: which there are, and how ids and answers change. Pure.

========================= =====================================================================
LOOKUP                    redirections are followed here; the answer names the broker, with
                          ``proxy_through_service_url``, by the URL that the proxy connects to
PARTITIONED_METADATA      the answer as it is
GET_TOPICS_OF_NAMESPACE   the same
GET_SCHEMA                the same
========================= =====================================================================

Each has the client's request id before and after, and one of the link to the broker between.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from geminga.model.errors import NotAllowedError, ServerError, UnavailableError
from geminga.proxy.core.targets import Target, parse_target
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar import commands

_Type = pb.BaseCommand
#: Brokers that one lookup may be sent on to.
REDIRECTS_MAX: Final = 20
_PORTS: Final = MappingProxyType({"pulsar": 6650, "pulsar+ssl": 6651})


class RequestKind(NamedTuple):
    """One kind of request."""

    #: Fields of BaseCommand.
    request: str
    answer: str
    #: What is counted.
    metric: str


KINDS: Final[Mapping[int, RequestKind]] = MappingProxyType(
    {
        _Type.LOOKUP: RequestKind("lookupTopic", "lookupTopicResponse", "lookup"),
        _Type.PARTITIONED_METADATA: RequestKind(
            "partitionMetadata", "partitionMetadataResponse", "partitions_metadata"
        ),
        _Type.GET_TOPICS_OF_NAMESPACE: RequestKind(
            "getTopicsOfNamespace", "getTopicsOfNamespaceResponse", "get_topics_of_namespace"
        ),
        _Type.GET_SCHEMA: RequestKind("getSchema", "getSchemaResponse", "get_schema"),
    }
)
#: Type of an answer -> its field.
ANSWERS: Final[Mapping[int, str]] = MappingProxyType(
    {
        _Type.LOOKUP_RESPONSE: "lookupTopicResponse",
        _Type.PARTITIONED_METADATA_RESPONSE: "partitionMetadataResponse",
        _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE: "getTopicsOfNamespaceResponse",
        _Type.GET_SCHEMA_RESPONSE: "getSchemaResponse",
        _Type.ERROR: "error",
    }
)


def request_id_of(command: pb.BaseCommand) -> int:
    """Of a request."""
    return int(getattr(command, KINDS[command.type].request).request_id)


def with_request_id(command: pb.BaseCommand, request_id: int) -> pb.BaseCommand:
    """The same request, or answer, under another id."""
    changed = pb.BaseCommand()
    changed.CopyFrom(command)
    kind = KINDS.get(command.type)
    getattr(changed, ANSWERS[command.type] if kind is None else kind.request).request_id = request_id
    return changed


def sent_on(command: pb.BaseCommand, answer: pb.BaseCommand, *, uses_tls: bool) -> tuple[Target, pb.BaseCommand] | None:
    """Whom to ask next, and what, if ``answer`` to a lookup names another broker; None: it is the answer.

    Raises UnavailableError where that broker can not be connected to.
    """
    found = answer.lookupTopicResponse
    if answer.type != _Type.LOOKUP_RESPONSE or found.response != pb.CommandLookupTopicResponse.Redirect:
        return None
    following = pb.BaseCommand()
    following.CopyFrom(command)
    following.lookupTopic.authoritative = found.authoritative
    return target_of(_broker_url(found, uses_tls=uses_tls)), following


def target_of(url: str) -> Target:
    """Host and port of a broker's URL; raises UnavailableError for what is none."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        default = _PORTS[parts.scheme]
        return parse_target(f"[{host}]:{port or default}" if ":" in host else f"{host}:{port or default}")
    except (KeyError, ValueError, NotAllowedError):
        raise UnavailableError(f"{url[:80]!r} is no URL of a broker; expected pulsar://host:port") from None


def answer_frame(answer: pb.BaseCommand, request_id: int, *, uses_tls: bool) -> bytes:
    """What the client is told; raises UnavailableError where the broker has no port that the proxy can connect to."""
    changed = with_request_id(answer, request_id)
    found = changed.lookupTopicResponse
    if answer.type == _Type.LOOKUP_RESPONSE and found.response == pb.CommandLookupTopicResponse.Connect:
        # One URL as both: how the proxy speaks to the broker has nothing to do with how the client speaks to it.
        url = _broker_url(found, uses_tls=uses_tls)
        found.brokerServiceUrl = found.brokerServiceUrlTls = url
        found.proxy_through_service_url = True
    return commands.encode_command(changed)


def _broker_url(found: pb.CommandLookupTopicResponse, *, uses_tls: bool) -> str:
    url = found.brokerServiceUrlTls if uses_tls else found.brokerServiceUrl
    if not url:
        how = "with TLS (tlsEnabledWithBroker=true)" if uses_tls else "without TLS (tlsEnabledWithBroker=false)"
        raise UnavailableError(f"the broker of this topic has no port {how}")
    return str(url)


def refusal_frame(command: pb.BaseCommand, code: ServerError, text: str) -> bytes:
    """The answer to a request that could not be carried out."""
    request_id = request_id_of(command)
    if command.type == _Type.LOOKUP:
        return commands.lookup_failed(request_id, code, text)
    if command.type == _Type.PARTITIONED_METADATA:
        return commands.partitions_failed(request_id, code, text)
    return commands.error(request_id, code, text)
