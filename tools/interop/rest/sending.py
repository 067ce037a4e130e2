"""Sends the stories to one broker and takes down what it answered."""

from __future__ import annotations

import http.client
import json
import re
import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlsplit

from geminga.client.blocking import connect
from tools.interop.rest.calls import Call, Publish, Story, Until
from tools.interop.rest.transacting import Transacting

#: Who takes longer does not answer at all.
ANSWER_LIMIT_S: Final = 10.0
#: Until a call is made again whose answer is waited for.
ASK_AGAIN_S: Final = 0.1
#: What stands for texts of Apache's broker that nobody should rely on: the page that Jetty makes of an error, what its
#: JSON library says of a body, an exception that nobody expected with its stack.
HTML: Final = "<html>"
JACKSON: Final = "<jackson>"
EXCEPTION: Final = "<exception>"
#: What Apache's broker says of an expiry while the one before is under way, and where there is nothing to expire.
ONGOING: Final = "due to ongoing message expiration not finished"
#: The name of a reader that Apache's broker made for itself.
_READER: Final = re.compile(r"(?<=__system_reader-)reader-[0-9a-f]{10}")
_ADDRESS: Final = re.compile(r"(127\.0\.0\.1|localhost):\d+")


@dataclass(frozen=True, slots=True)
class Answer:
    """What is compared of an answer."""

    status: int
    #: What an error says; ``<html>`` for a page, empty for no body.
    reason: str = ""
    #: Path of each leaf of a good answer's body -> its type, or its value where values are compared.
    body: Mapping[str, Any] | None = None


#: A connection that ends without an answer.
CLOSED: Final = Answer(0, "<closed>")
#: No answer.
SILENT: Final = Answer(0, "<silent>")


def send_all(stories: Iterable[Story], web_url: str, service_url: str) -> dict[str, Answer]:
    """Name of each call -> the answer; raises AssertionError where a story's namespace can not be made."""
    address = urlsplit(web_url)
    connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=ANSWER_LIMIT_S)
    answers: dict[str, Answer] = {}
    try:
        for story in stories:
            with Transacting(service_url, story.namespace) as transacting:
                told = _tell(story, connection, transacting)
            assert not told.keys() & answers.keys(), f"two stories are called {story.name}"
            answers |= told
    finally:
        connection.close()
    return answers


def _tell(story: Story, connection: http.client.HTTPConnection, transacting: Transacting) -> dict[str, Answer]:
    answers: dict[str, Answer] = {}
    sender = _Sender(connection, transacting)
    made = sender.send(Call("PUT", f"namespaces/{story.namespace}"))
    assert made.status == 204, (story.namespace, made)
    for name, step in story.named_steps():
        if isinstance(step, Publish):
            sender.ledger_id = _publish(step, story.namespace, transacting.service_url)
        elif isinstance(step, Until):
            sender.send_until(step)
        elif isinstance(step, Call):
            answers[name] = sender.send_settled(step)
        else:
            transacting.do(step)
    return answers


def _publish(step: Publish, namespace: str, service_url: str) -> int:
    """The ledger that the last message is in."""
    with (
        connect(service_url) as client,
        client.create_producer(step.topic.replace("{ns}", namespace), **step.options) as producer,
    ):
        return [producer.send(b"m%d" % index).ledger_id() for index in range(step.count)][-1]


class _Sender:
    """Sends the calls of one story."""

    def __init__(self, connection: http.client.HTTPConnection, transacting: Transacting) -> None:
        self._connection = connection
        self._transacting = transacting
        #: That the last :class:`Publish` wrote to.
        self.ledger_id = 0

    def send_until(self, step: Until) -> None:
        """Until the status is the one that is waited for."""
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while (answer := self.send(Call("GET", step.path))).status != step.status:
            assert time.monotonic() < deadline, (step, answer)
            time.sleep(ASK_AGAIN_S)

    def send_settled(self, call: Call) -> Answer:
        """One call; made again where it came upon what the call before began, and Apache's broker ends by and by."""
        answer = self.send(call)
        if answer.status == http.client.CONFLICT and ONGOING in answer.reason:
            time.sleep(ASK_AGAIN_S)
            answer = self.send(call)
        return answer

    def send(self, call: Call, *, is_again: bool = False) -> Answer:
        """One call."""
        connection, namespace = self._connection, self._transacting.namespace
        content = call.content(namespace)
        # In JSON the text becomes a number.
        content = content and content.replace(b'"{ledger}"', b"%d" % self.ledger_id)
        target = self._transacting.filled(call.target(namespace)).replace("{ledger}", str(self.ledger_id))
        headers = dict(call.headers)
        if content is not None and "Content-Type" not in headers:
            headers["Content-Type"] = "application/json"
        try:
            connection.request(call.method, target, content, headers)
            response = connection.getresponse()
            body = response.read()
        except (http.client.RemoteDisconnected, ConnectionError):
            connection.close()
            # It may have been closed after the answer before: only one that was made for this call tells.
            return CLOSED if is_again else self.send(call, is_again=True)
        except TimeoutError:
            connection.close()
            return SILENT
        answer = answer_of(response.status, self._transacting.named(body), exact=call.exact, values=call.values)
        return answer if call.keys else replace(answer, body=None)


def answer_of(status: int, body: bytes, *, exact: bool, values: Collection[str] = ()) -> Answer:
    """What is compared of an answer; addresses of the broker are left out."""
    text = _ADDRESS.sub("HOST", _READER.sub("reader", body.decode("utf-8", "backslashreplace"))).strip()
    try:
        value = json.loads(text) if text else None
    except ValueError:
        value = text
    if status >= http.HTTPStatus.BAD_REQUEST:
        if isinstance(value, dict) and isinstance(value.get("reason"), str):
            return Answer(status, _kind_of_error(value["reason"]))
        return Answer(status, _kind_of_error(text))
    if not text:
        return Answer(status)
    leaves: dict[str, Any] = {}
    _take_leaves(leaves, "", value, exact=exact, values=values)
    return Answer(status, "", leaves)


def _kind_of_error(text: str) -> str:
    if text.startswith(("<html", "<!")):
        return HTML
    if "[Source: REDACTED" in text:
        return JACKSON
    return EXCEPTION if "Stacktrace:" in text else text


def _take_leaves(leaves: dict[str, Any], path: str, value: object, *, exact: bool, values: Collection[str]) -> None:
    """``a.b``, ``a[]``; the types of several elements of a list are those of the last that differs."""
    if isinstance(value, dict):
        leaves.setdefault(path or ".", "object")
        for key, member in value.items():
            _take_leaves(leaves, f"{path}.{key}" if path else key, member, exact=exact, values=values)
    elif isinstance(value, list):
        if exact:
            # The order of names means nothing.
            leaves[path or "."] = sorted(value) if all(isinstance(item, str) for item in value) else value
            return
        leaves.setdefault(path or ".", "array")
        for member in value:
            _take_leaves(leaves, f"{path}[]", member, exact=exact, values=values)
    else:
        leaves[path or "."] = value if exact or path in values else _type_of(value)


def _type_of(value: object) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else "string"
