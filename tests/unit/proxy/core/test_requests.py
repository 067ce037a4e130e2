"""Requests that brokers answer through the proxy: ids, redirections, answers."""

from __future__ import annotations

import pytest

from geminga.model.errors import ServerError, UnavailableError
from geminga.proxy.core.requests import (
    ANSWERS,
    KINDS,
    answer_frame,
    refusal_frame,
    request_id_of,
    sent_on,
    target_of,
    with_request_id,
)
from geminga.proxy.core.targets import Target
from geminga.wire._generated import pulsar_api_pb2 as pb
from geminga.wire.pulsar.commands import decode_command

Type = pb.BaseCommand
Found = pb.CommandLookupTopicResponse


def lookup(request_id: int = 7) -> pb.BaseCommand:
    return pb.BaseCommand(
        type=Type.LOOKUP,
        lookupTopic=pb.CommandLookupTopic(topic="t", request_id=request_id, advertised_listener_name="inner"),
    )


def found(kind: Found.LookupType, url: str = "pulsar://b:6650", url_tls: str = "", **more: object) -> pb.BaseCommand:
    body = Found(brokerServiceUrl=url, brokerServiceUrlTls=url_tls, response=kind, request_id=99)
    for name, value in more.items():
        setattr(body, name, value)
    return pb.BaseCommand(type=Type.LOOKUP_RESPONSE, lookupTopicResponse=body)


@pytest.mark.parametrize("kind", KINDS)
def test_each_request_and_answer_gets_another_id_and_keeps_the_rest(kind: int) -> None:
    command = pb.BaseCommand(type=kind)
    body = getattr(command, KINDS[kind].request)
    body.SetInParent()
    body.request_id = 5
    changed = with_request_id(command, 6)
    assert (request_id_of(command), request_id_of(changed)) == (5, 6)
    assert with_request_id(changed, 5) == command
    assert KINDS[kind].answer in ANSWERS.values()


def test_a_lookup_is_sent_on_to_the_broker_that_is_named() -> None:
    answer = found(Found.Redirect, "pulsar://b-2:6650", "pulsar+ssl://b-2:6651", authoritative=True)
    target, following = sent_on(lookup(), answer, uses_tls=False) or (None, None)
    assert target == Target("b-2", 6650)
    assert following is not None
    assert following.lookupTopic.authoritative
    assert following.lookupTopic.advertised_listener_name == "inner"
    assert (sent_on(lookup(), answer, uses_tls=True) or (None,))[0] == Target("b-2", 6651)
    for kind in (Found.Connect, Found.Failed):
        assert sent_on(lookup(), found(kind), uses_tls=False) is None


def test_the_answer_names_the_broker_by_the_url_that_the_proxy_connects_to() -> None:
    answer = found(Found.Connect, "pulsar://b:6650", "pulsar+ssl://b:6651")
    for uses_tls, url in ((False, "pulsar://b:6650"), (True, "pulsar+ssl://b:6651")):
        told = decode_command(answer_frame(answer, 7, uses_tls=uses_tls)[8:]).lookupTopicResponse
        assert (told.brokerServiceUrl, told.brokerServiceUrlTls, told.request_id) == (url, url, 7)
        assert told.proxy_through_service_url
    with pytest.raises(UnavailableError, match="no port with TLS"):
        answer_frame(found(Found.Connect), 7, uses_tls=True)
    with pytest.raises(UnavailableError, match="no port without TLS"):
        answer_frame(found(Found.Connect, "", "pulsar+ssl://b:6651"), 7, uses_tls=False)


def test_other_answers_pass_as_they_are() -> None:
    failed = found(Found.Failed, "", error=ServerError.AUTHORIZATION_ERROR, message="no")
    told = decode_command(answer_frame(failed, 7, uses_tls=True)[8:]).lookupTopicResponse
    assert (told.error, told.message, told.proxy_through_service_url) == (ServerError.AUTHORIZATION_ERROR, "no", False)
    error = pb.BaseCommand(
        type=Type.ERROR, error=pb.CommandError(request_id=99, error=ServerError.TOPIC_NOT_FOUND, message="gone")
    )
    told = decode_command(answer_frame(error, 7, uses_tls=True)[8:]).error
    assert (told.request_id, told.error, told.message) == (7, ServerError.TOPIC_NOT_FOUND, "gone")


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("pulsar://b:6650", Target("b", 6650)),
        ("pulsar://b", Target("b", 6650)),
        ("pulsar+ssl://b", Target("b", 6651)),
        ("pulsar://[::1]:1", Target("::1", 1)),
    ],
)
def test_a_brokers_url_has_host_and_port(url: str, target: Target) -> None:
    assert target_of(url) == target


@pytest.mark.parametrize("url", ["", "b:6650", "http://b:80", "pulsar://:6650", "pulsar://b:port", "pulsar://b:0x1"])
def test_what_is_no_url_of_a_broker_is_refused(url: str) -> None:
    with pytest.raises(UnavailableError, match="no URL of a broker"):
        target_of(url)


@pytest.mark.parametrize("kind", KINDS)
def test_a_refusal_has_the_shape_of_the_answer(kind: int) -> None:
    command = pb.BaseCommand(type=kind)
    body = getattr(command, KINDS[kind].request)
    body.SetInParent()
    body.request_id = 5
    told = decode_command(refusal_frame(command, ServerError.TOO_MANY_REQUESTS, "full")[8:])
    part = getattr(told, ANSWERS[told.type])
    assert (part.request_id, part.error, part.message) == (5, ServerError.TOO_MANY_REQUESTS, "full")
    if kind in (Type.LOOKUP, Type.PARTITIONED_METADATA):
        assert ANSWERS[told.type] == KINDS[kind].answer
