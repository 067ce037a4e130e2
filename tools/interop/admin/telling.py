"""Runs the stories at one broker, and what is compared of what the commands printed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

from geminga.client import InitialPosition
from geminga.client.blocking import Client, connect
from tools.interop.admin.recorder import Recorder, Request
from tools.interop.admin.stories import Story
from tools.interop.artifacts import admin_class_path
from tools.interop.pulsar_admin import Printed
from tools.interop.rest.sending import EXCEPTION, Answer, answer_of
from tools.interop.rest.tables.pulsar_admin import MESSAGES

#: Of commands whose numbers and texts are of the moment, or of the machine, names and types are compared.
MOVING: Final = re.compile(
    r"(\w|-)+ \S*(stats|internal|lookup|bundle-range|message-id|examine|peek|leader|positions|analyze|backlog-size)"
    r"|get-message-by-id|brokers (list|namespaces|get-\w+-config|version)"
    r"|bookies list|namespaces (list|policies) |proxy-stats|ns-isolation-policy broker"
    r"|transactions|clusters get-failure|clusters list-failure|schemas (get|metadata)"
)
#: Of these, whether they are done, alone: they tell of the machine, of all topics of the broker or of topics of its
#: own, and the last prints an object of Java's instead of the answer, which may be there or not by then.
DONE_ALONE: Final = re.compile(
    r"broker-stats |\S+ (coordinator|buffer-snapshot)-internal-stats"
    r"|topicPolicies get-dispatcher-pause-on-ack-state-persistent"
)
_POSITION: Final = re.compile(r"\b\d+:\d+:(?=-?\d)|(?<= at )(-1|\d+):-1:")
_STACK: Final = re.compile(r"\n\s*at .*", re.DOTALL)
_HOST: Final = re.compile(r"(127\.0\.0\.1|localhost):\d+")
#: Statuses of an answer that stand for how a command ended.
DONE: Final = 200
FAILED: Final = 400
#: What Jetty says of a path that nobody serves.
NO_ROUTE: Final = "<no such path>"


class Tool(Protocol):
    """What runs commands: ``pulsar-admin``, or Geminga's own."""

    def run(self, url: str, *words: str) -> Printed:
        """One command at the broker whose REST is at ``url``."""


class Told(NamedTuple):
    """What came of all lines at one broker, by their names."""

    answers: dict[str, Answer]
    #: What was printed, to look at.
    printed: dict[str, Printed]
    requests: dict[str, list[Request]]
    #: Each story with its namespace and all of its requests.
    stories: list[tuple[Story, str, list[Request]]]


class Teller:
    """At one broker."""

    def __init__(self, admin: Tool, recorder: Recorder, *, web_url: str, service_url: str, directory: Path) -> None:
        self._admin = admin
        self._recorder = recorder
        self._fixed = {
            "{web}": web_url,
            "{service}": service_url,
            "{broker}": web_url.removeprefix("http://"),
            "{files}": str(directory),
            "{jar}": next(part for part in admin_class_path().split(os.pathsep) if "pulsar-common-" in part),
        }
        self._service_url = service_url
        schema = {"type": "STRING", "schema": "", "properties": {}}
        (directory / "schema.json").write_text(json.dumps(schema), encoding="utf-8")

    def tell_all(self, stories: Iterable[Story]) -> Told:
        """Run them; AssertionError where what a story begins with can not be made."""
        told = Told({}, {}, {}, [])
        with connect(self._service_url) as client:
            for number, story in enumerate(stories):
                lines = " ".join(story.lines)
                namespace = f"public/admin-{number}"
                words = self._prepared(client, namespace, lines)
                if "{most}" in lines:
                    words |= _begun(client, words["{topic}"])
                self._recorder.take()
                sent: list[Request] = []
                told.stories.append((story, namespace, sent))
                for count, line in enumerate(story.lines):
                    name = f"{story.title}: {line}" + (f" #{count}" if line in story.lines[:count] else "")
                    printed = self._admin.run(self._recorder.url, *filled(line, words).split())
                    told.printed[name] = printed
                    told.answers[name] = seen(line, printed)
                    told.requests[name] = self._recorder.take()
                    sent += told.requests[name]
        return told

    def _prepared(self, client: Client, namespace: str, lines: str) -> dict[str, str]:
        """What stands in braces -> what is meant; namespace and topics are made where a line speaks of them."""
        topic, parts = f"persistent://{namespace}/t", f"persistent://{namespace}/p"
        words = {**self._fixed, "{ns}": namespace, "{topic}": topic, "{parts}": parts, "{empty}": f"{namespace}-e"}
        self._put(f"namespaces/{namespace}")
        if "{empty}" in lines:
            self._put(f"namespaces/{namespace}-e")
        if "{parts}" in lines:
            self._put(f"{parts.replace('://', '/')}/partitions", b"2")
        if "non-{topic}" in lines:
            self._put(f"non-{topic.replace('://', '/')}")
        if "{topic}" in lines or "{bundle}" in lines:
            path = topic.replace("://", "/")
            self._put(path)
            for subscription in ("s", "t"):
                self._put(f"{path}/subscription/{subscription}", b'{"ledgerId":-1,"entryId":-1}')
            with client.create_producer(topic, batching_enabled=False) as producer:
                sent = [producer.send(b"m%d" % number) for number in range(MESSAGES)]
            words["{ledger}"] = str(sent[0].ledger_id())
            with urlopen(f"{self._fixed['{web}']}/lookup/v2/topic/{path}/bundle", timeout=30) as answer:
                words["{bundle}"] = answer.read().decode()
        return words

    def _put(self, path: str, body: bytes | None = None) -> None:
        request = HttpRequest(f"{self._fixed['{web}']}/admin/v2/{path}", body, method="PUT")
        request.add_header("Content-Type", "application/json")
        with urlopen(request, timeout=30) as answer:
            assert answer.status < FAILED, (path, answer.status)


def _begun(client: Client, topic: str) -> dict[str, str]:
    """A transaction that published to the topic and acknowledged there, and stays open."""
    transaction = client.transaction(600.0)
    with client.create_producer(topic, batching_enabled=False) as producer:
        producer.send(b"held", txn=transaction)
    consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
    consumer.acknowledge(consumer.receive(5000), txn=transaction)
    consumer.close()
    most, least = transaction.id
    return {"{most}": str(most), "{least}": str(least)}


def filled(line: str, words: Mapping[str, str]) -> str:
    """A line with what is meant by its braces."""
    for brace, word in words.items():
        line = line.replace(brace, word)
    return line


def seen(line: str, printed: Printed) -> Answer:
    """What is compared."""
    if printed.is_done and DONE_ALONE.search(line):
        return Answer(DONE)
    if printed.is_done:
        out = _POSITION.sub("LEDGER:ENTRY:", printed.out)
        return answer_of(DONE, out.encode(), exact=not MOVING.search(line))
    # What the tool says, without the reason that it repeats.
    text = _HOST.sub("HOST", _STACK.sub("", printed.errors)).partition("\nReason: ")[0]
    if "Stacktrace:" in text:
        return Answer(FAILED, EXCEPTION)
    return Answer(FAILED, NO_ROUTE if '"servlet":' in text else " ".join(text.split()))
