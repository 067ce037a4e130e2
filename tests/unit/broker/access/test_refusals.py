"""What is said to who may not."""

from __future__ import annotations

from geminga.broker.access.anonymous import ANONYMOUS_MAY
from geminga.broker.access.core.actions import (
    EVERYTHING,
    NamespaceOperation,
    PolicyName,
    TenantOperation,
    TopicOperation,
    of_namespace,
    of_topic,
    reading,
    writing,
)
from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.access.ports import Allowed, Denied
from geminga.broker.access.refusals import refused_command, refused_request
from geminga.model.errors import ServerError
from geminga.model.topic_name import TopicName


def test_command_is_refused_with_the_code_for_it() -> None:
    error = refused_command(TopicOperation.PRODUCE, Denied())
    assert (error.server_error, error.told) == (ServerError.AUTHORIZATION_ERROR, "Client is not authorized to produce")
    assert refused_command(TopicOperation.PRODUCE, Denied("no")).told == "no"


def test_request_of_nobody_is_401_that_of_somebody_403() -> None:
    nobody = refused_request(ANONYMOUS, reading(PolicyName.TTL), Denied())
    assert (nobody.http_status, nobody.told) == (401, "Need to authenticate to perform the request")
    somebody = refused_request(Principal("proxy", "jane"), writing(PolicyName.TTL), Denied())
    assert (somebody.http_status, somebody.told) == (403, "Unauthorized to write ttl for proxy for jane")
    assert refused_request(Principal("jane"), TopicOperation.SKIP, Denied("no")).told == "no"


def test_words_of_two_enumerations_are_different_actions() -> None:
    assert len({TenantOperation.CREATE_NAMESPACE, NamespaceOperation.CREATE_TOPIC, TopicOperation.LOOKUP}) == 3
    assert all(one != other for one in TopicOperation for other in NamespaceOperation)
    assert reading(PolicyName.TTL) == reading(PolicyName.TTL) != writing(PolicyName.TTL)


def test_resource_is_called_by_its_most_particular_part() -> None:
    name = TopicName.parse("persistent://t/n/x")
    assert str(of_topic(name)) == "persistent://t/n/x"
    assert str(of_topic(name, "sub")) == "persistent://t/n/x sub"
    assert of_topic(name).namespace == "t/n"
    assert (str(of_namespace("t/n")), of_namespace("t/n").tenant) == ("t/n", "t")
    assert str(EVERYTHING) == "the cluster"


def test_nobody_in_particular_may_do_everything_while_authorization_is_off() -> None:
    assert isinstance(ANONYMOUS_MAY.decide(ANONYMOUS, TenantOperation.DELETE_TENANT, EVERYTHING), Allowed)
