"""Answers to requests: each kind has a request id, and those with an error in them raise it."""

from __future__ import annotations

import inspect

import pytest

import geminga.client as gc
from geminga.client._consuming.topic_consumer import TopicConsumer
from geminga.client._producing.topic_producer import TopicProducer
from geminga.client._transport.answers import ANSWERS, FIELD_OF_ANSWER, error_of_answer
from geminga.client._transport.handlers import ConsumerHandler, ProducerHandler
from geminga.wire._generated import pulsar_api_pb2 as pb


@pytest.mark.parametrize("kind", ANSWERS)
def test_answer_has_a_request_id_and_no_error_unless_it_says_so(kind: int) -> None:
    body = getattr(pb.BaseCommand(), FIELD_OF_ANSWER[kind])
    assert "request_id" in body.DESCRIPTOR.fields_by_name
    assert error_of_answer(kind, body) is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (
            pb.BaseCommand.LOOKUP_RESPONSE,
            pb.CommandLookupTopicResponse(
                request_id=1, response=pb.CommandLookupTopicResponse.Failed, error=pb.TopicNotFound, message="why"
            ),
        ),
        (
            pb.BaseCommand.PARTITIONED_METADATA_RESPONSE,
            pb.CommandPartitionedTopicMetadataResponse(
                request_id=1,
                response=pb.CommandPartitionedTopicMetadataResponse.Failed,
                error=pb.TopicNotFound,
                message="why",
            ),
        ),
        (
            pb.BaseCommand.GET_SCHEMA_RESPONSE,
            pb.CommandGetSchemaResponse(request_id=1, error_code=pb.TopicNotFound, error_message="why"),
        ),
        (
            pb.BaseCommand.NEW_TXN_RESPONSE,
            pb.CommandNewTxnResponse(request_id=1, error=pb.TopicNotFound, message="why"),
        ),
    ],
)
def test_error_in_an_answer_has_the_brokers_name_and_text(kind: int, body) -> None:
    error = error_of_answer(kind, body)
    assert type(error) is gc.TopicNotFound
    assert str(error) == "why"


@pytest.mark.parametrize(
    ("handler", "implementation"), [(ProducerHandler, TopicProducer), (ConsumerHandler, TopicConsumer)]
)
def test_handlers_have_what_a_connection_calls(handler, implementation) -> None:
    for name, method in inspect.getmembers(handler, inspect.isfunction):
        if name.startswith("on_"):
            expected = list(inspect.signature(method).parameters)
            assert list(inspect.signature(getattr(implementation, name)).parameters) == expected
