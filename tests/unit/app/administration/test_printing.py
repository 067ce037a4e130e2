"""What is printed, for people, as JSON and YAML, and as ``pulsar-admin`` prints it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from geminga.admin._request import Request
from geminga.admin.values import StoredMessage
from geminga.app.administration.arguments import given
from geminga.app.administration.groups import commands_of
from geminga.app.administration.printing import printed, table, yaml_of
from geminga.app.administration.session import UNSENT
from geminga.app.administration.session import told as request_told
from geminga.app.administration.shapes import jackson, java

_ID = {"ledgerId": 5, "entryId": 2, "partitionIndex": -1}
_MESSAGE = StoredMessage(
    b"m1\x00",
    {
        "x-pulsar-message-id": "3:1",
        "x-pulsar-publish-time": "2026-11-28T03:12:28.490Z",
        "x-pulsar-property-a": "b",
    },
)
_DUMP = """\
         +-------------------------------------------------+
         |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
+--------+-------------------------------------------------+----------------+
|00000000| 6d 31 00                                        |m1.             |
+--------+-------------------------------------------------+----------------+"""


def told(words: str, value: Any, how: str = "pulsar", *more: str) -> str:
    group, _, name = words.partition(" ")
    command = commands_of(group)[name]
    places = ["t"] * len(command.places)
    needed = [
        word
        for option in command.options
        if option.need == "!"
        for word in (option.longest, {"megabytes": "1M", "minutes": "60"}.get(option.kind, "1"))
    ]
    return printed(command, given(command, [*places, *needed, *more], {}), value, how)


@pytest.mark.parametrize(
    ("words", "value", "text"),
    [
        ("tenants list", ["a", "b"], "a\nb"),
        ("tenants get", {"adminRoles": [], "x": {}}, '{\n  "adminRoles" : [ ],\n  "x" : { }\n}'),
        ("topics get-retention", None, "null"),
        ("topics set-retention", None, ""),
        ("topics terminate", _ID, "Topic successfully terminated at 5:2:-1"),
        ("topics partitioned-terminate", {"0": _ID}, "Topic t-partition-0 successfully terminated at 5:2:-1"),
        ("topics lookup", {"brokerUrl": "pulsar://a:1"}, "pulsar://a:1"),
        ("topics permissions", {"r": ["produce", "consume"]}, "r    [produce, consume]"),
        ("topics get-properties", {}, ""),
        ("topics get-subscription-properties", {"a": "b"}, '{"a":"b"}'),
        ("namespaces get-properties", {}, "{ }"),
        ("namespaces get-offload-deletion-lag", 3_600_000, "60 minute(s)"),
        ("namespaces get-offload-deletion-lag", None, "Unset for namespace. Defaulting to broker setting."),
        ("namespaces get-subscription-auth-mode", "None", '"None"'),
        ("namespaces get-anti-affinity-group", None, ""),
        ("topics get-subscription-types-enabled", ["Shared"], '[ "Shared" ]'),
        (
            "namespaces get-backlog-quotas",
            {"destination_storage": {"limitSize": 1, "policy": "x"}},
            "destination_storage    BacklogQuotaImpl(limitSize=1, policy=x)",
        ),
        ("brokers namespaces", {"a/b": {"x": True, "y": "z"}}, "a/b    [x=true y=z]"),
        ("brokers healthcheck", "ok", "ok"),
        ("brokers backlog-quota-check", None, "ok"),
        ("broker-stats topics", {"a": 1}, '{"a":1}'),
        ("transactions coordinators-list", [{"id": 0, "brokerServiceUrl": "pulsar://a:1"}], "0    pulsar://a:1"),
        ("topics info-internal", {"a": []}, '{\n  "a": []\n}'),
        ("persistent info-internal", {"a": 1}, '"{\\"a\\":1}"'),
    ],
)
def test_scripts_read_what_pulsar_admin_prints(words: str, value: Any, text: str) -> None:
    assert told(words, value) == text


def test_statistics_of_a_broker_are_indented_where_that_is_asked_for() -> None:
    assert told("broker-stats topics", {"a": 1}, "pulsar", "-i") == '{\n  "a" : 1\n}'


def test_messages_have_their_bytes() -> None:
    head = 'Message ID: 3:1\nPublish time: 1795835548490\nEvent time: 0\nProperties:\n{"a":"b"}\n'
    assert told("topics peek-messages", [_MESSAGE]) == head + _DUMP
    assert told("persistent get-message-by-id", _MESSAGE) == _DUMP
    assert told("topics peek-messages", [_MESSAGE, _MESSAGE]).count("-" * 73 + "\n\nMessage ID") == 1
    assert json.loads(told("topics peek-messages", [_MESSAGE], "json")) == [
        {
            "message-id": "3:1",
            "publish-time": "2026-11-28T03:12:28.490Z",
            "properties": {"a": "b"},
            "payload": "6d3100",
        }
    ]


def test_schemas_have_the_shapes_of_their_command() -> None:
    one = {"version": 0, "type": "JSON", "timestamp": 1, "data": '{"a":1}', "properties": {}}
    info = {"name": "t", "schema": {"a": 1}, "type": "JSON", "timestamp": 1, "properties": {}}
    assert json.loads(told("schemas get", one)) == {"version": 0, "schemaInfo": info}
    assert json.loads(told("schemas get", one, "pulsar", "-v", "0")) == info
    assert '"schemaDefinition" : "{\\"a\\":1}"' in told("schemas get", {"getSchemaResponses": [one]}, "pulsar", "-a")


def test_tables_are_for_people() -> None:
    assert table([{"id": 0, "url": "a"}, {"id": 10, "b": True}]) == "id  url  b\n0   a    -\n10  -    True"
    assert table(None) == "not set"
    assert table(["a", "b"]) == "a\nb"
    assert told("tenants get", {"adminRoles": ["a"]}, "table").split() == ["admin", "roles", "a"]
    assert told("topics set-retention", None, "table") == told("topics unload", UNSENT, "json") == ""


def test_yaml_is_read_as_the_same() -> None:
    value = {"a": [1, {"b": [], "c": "x: y"}, ["d"]], "e": {"f": None, "g": True}, "h": ""}
    lines = list(yaml_of(value, 0))
    assert lines == [
        '"a":',
        "  - 1",
        '  - "b": []',
        '    "c": "x: y"',
        '  - - "d"',
        '"e":',
        '  "f": null',
        '  "g": true',
        '"h": ""',
    ]
    assert list(yaml_of("a\nb", 0)) == ['"a\\nb"']


def test_values_are_written_as_java_writes_them() -> None:
    assert jackson({"a": [{"b": 1}, "c"]}) == '{\n  "a" : [ {\n    "b" : 1\n  }, "c" ]\n}'
    assert java({"a": [True, None], "b": {"c": 1}}) == "{a=[true, null], b={c=1}}"


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (Request[Any]("GET", "/a", {"b": True, "c": None, "d": 1}), "GET /a?b=true&d=1"),
        (Request[Any]("PUT", "/a", body={"b": 1}), 'PUT /a {"b": 1}'),
        (Request[Any]("PUT", "/a", body=0), "PUT /a 0"),
        (Request[Any]("POST", "/a", text="http://b"), "POST /a http://b"),
        (Request[Any]("POST", "/a", text=""), "POST /a "),
    ],
)
def test_request_is_shown_as_it_would_be_sent(request_: Request[Any], text: str) -> None:
    assert request_told(request_) == text
