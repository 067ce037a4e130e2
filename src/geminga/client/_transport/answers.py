"""Commands that answer a request by its id, and the errors some of them carry."""

from __future__ import annotations

from typing import Final, cast

from google.protobuf.message import Message as ProtobufMessage

from geminga.client._api.errors import PulsarException, error_from_broker
from geminga.wire._generated import pulsar_api_pb2 as pb

_Type = pb.BaseCommand

#: Kinds of commands that answer a request.
ANSWERS: Final = (
    _Type.SUCCESS,
    _Type.PRODUCER_SUCCESS,
    _Type.PARTITIONED_METADATA_RESPONSE,
    _Type.LOOKUP_RESPONSE,
    _Type.CONSUMER_STATS_RESPONSE,
    _Type.GET_LAST_MESSAGE_ID_RESPONSE,
    _Type.GET_TOPICS_OF_NAMESPACE_RESPONSE,
    _Type.GET_SCHEMA_RESPONSE,
    _Type.GET_OR_CREATE_SCHEMA_RESPONSE,
    _Type.NEW_TXN_RESPONSE,
    _Type.ADD_PARTITION_TO_TXN_RESPONSE,
    _Type.ADD_SUBSCRIPTION_TO_TXN_RESPONSE,
    _Type.END_TXN_RESPONSE,
    _Type.END_TXN_ON_PARTITION_RESPONSE,
    _Type.END_TXN_ON_SUBSCRIPTION_RESPONSE,
    _Type.TC_CLIENT_CONNECT_RESPONSE,
    _Type.WATCH_TOPIC_LIST_SUCCESS,
)
#: Field of BaseCommand that carries each of them: it has the number of the type.
FIELD_OF_ANSWER: Final = {kind: pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].name for kind in ANSWERS}


def _error_fields(kind: int) -> list[tuple[str, str]]:
    body = pb.BaseCommand.DESCRIPTOR.fields_by_number[kind].message_type
    names = body.fields_by_name if body is not None else {}
    return [each for each in (("error_code", "error_message"), ("error", "message")) if each[0] in names]


#: The fields of their errors, code and text.
_ERROR_FIELDS: Final[dict[int, list[tuple[str, str]]]] = {int(kind): _error_fields(kind) for kind in ANSWERS}


def error_of_answer(kind: int, body: ProtobufMessage) -> PulsarException | None:
    """The error that an answer of its own kind carries; None if it succeeded."""
    if kind == _Type.LOOKUP_RESPONSE:
        lookup = cast("pb.CommandLookupTopicResponse", body)
        if lookup.response == pb.CommandLookupTopicResponse.Failed:
            return error_from_broker(lookup.error, lookup.message)
    elif kind == _Type.PARTITIONED_METADATA_RESPONSE:
        partitions = cast("pb.CommandPartitionedTopicMetadataResponse", body)
        if partitions.response == pb.CommandPartitionedTopicMetadataResponse.Failed:
            return error_from_broker(partitions.error, partitions.message)
    else:
        for code, text in _ERROR_FIELDS[kind]:
            if body.HasField(code):
                return error_from_broker(getattr(body, code), getattr(body, text))
    return None
