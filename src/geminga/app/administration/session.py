"""What a command does with a broker: asks it, or prints what it would ask; and asks the operator first."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final

from geminga.admin import _paths
from geminga.admin._request import Caller, Request, answer_to
from geminga.admin.errors import AdminError, UnreachableError
from geminga.app.administration.arguments import Given, UsageError
from geminga.app.administration.command import Command
from geminga.app.administration.units import Plain
from geminga.app.lifecycle.terminal_text import visible

#: Looks that do something all the same.
CHANGING_LOOKS: Final = frozenset({"/admin/v2/brokers/backlog-quota-check", "/admin/v2/brokers/health"})
#: How a place of a path is written there; any other is a text.
_WRITTEN: Final = {
    "topic": _paths.topic,
    "place": _paths.place,
    "namespace": _paths.namespace,
    "subscription": _paths.subscription,
}
_TRANSACTIONS: Final = "/admin/v3/transactions/"
_OF_ALL_DRIVERS: Final = ("Bucket", "MaxBlockSizeInBytes", "ReadBufferSizeInBytes", "Region", "ServiceEndpoint")
_S3_PLACES: Final = frozenset(f"s3ManagedLedgerOffload{name}" for name in _OF_ALL_DRIVERS)
#: Functions that ask by themselves: they find out first how much is hit.
ASKING: Final = frozenset({"delete-cluster", "delete-topics"})
#: Names that a question tells.
NAMED_MAX: Final = 3
#: Requests in a row without an answer after which the rest is left alone: each waits its whole time.
UNANSWERED_MAX: Final = 2
#: Stands for the answer of a request that was not sent.
UNSENT: Final = object()


class FailedError(Exception):
    """A command that could not do all that it should: one paragraph."""


class Session:
    """Of one command."""

    def __init__(self, caller: Caller, *, is_dry: bool, is_agreed: bool, asks: bool) -> None:
        """``is_dry``: nothing is changed; ``is_agreed``: no question; ``asks``: there are questions at all."""
        self._caller = caller
        self.is_dry: Final = is_dry
        self._is_agreed = is_agreed
        self._asks = asks

    def ask(self, request: Request[Any]) -> Any:  # noqa: ANN401  (what the broker says)
        """The answer; UNSENT in a dry run, which prints the request. Raises AdminError."""
        if self.is_dry:
            print(told(request))
            return UNSENT
        return answer_to(self._caller, request)

    def look(self, path: str) -> Any:  # noqa: ANN401  (what the broker says)
        """What a command has to know for its request: sent in a dry run as well. Raises AdminError."""
        if path in CHANGING_LOOKS:
            raise ValueError(f"{path} changes something")
        return answer_to(self._caller, Request("GET", path))

    @property
    def is_to_ask(self) -> bool:
        """Whether the operator is asked before what can not be undone."""
        return self._asks and not self.is_dry and not self._is_agreed

    def need_terminal(self, what: str) -> None:
        """Raises UsageError where the operator is to be asked, and can not be."""
        if self.is_to_ask and not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(
                f"{what} can not be undone, and there is no terminal to ask at: nothing was done; --yes does"
            )

    def agree(self, what: str, hits: Callable[[], str] = str) -> None:
        """Ask before what can not be undone; raises UsageError without a terminal, SystemExit for a no.

        ``hits``: all that is hit, found out where somebody can be asked alone.
        """
        self.need_terminal(what)
        if not self.is_to_ask:
            return
        told = hits()
        question = f"{what}{told and f', {told},'} can not be undone. Go on? [y/N] "
        print(visible(question, is_name=True), end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() not in ("y", "yes"):
            raise SystemExit(1)

    def partitions(self, topic: str) -> int:
        """How many a topic has, 0 without. Raises AdminError."""
        found = self.look(f"/admin/v2/{_paths.topic(topic)}/partitions")
        return int(found["partitions"]) if isinstance(found, dict) else 0

    def on_each_partition(self, topic: str, request: Any) -> Any:  # noqa: ANN401
        """``request(topic)`` for the topic, or for each of its partitions: all are tried.

        Raises FailedError that names the partitions that failed, AdminError of a topic without.
        """
        if "-partition-" in topic or not (count := self.partitions(topic)):
            return self.ask(request(topic))
        requests = [(f"partition {number}", request(f"{topic}-partition-{number}")) for number in range(count)]
        self.each(requests, lambda done: f"{topic}: done for {done} of {count} partitions", "not for")
        return UNSENT if self.is_dry else None

    def each(self, requests: Sequence[tuple[str, Request[Any]]], told: Callable[[int], str], but: str) -> None:
        """All are tried, each by its name, unless nobody answers any more.

        Raises FailedError that names those that failed behind ``but``, and what ``told`` says of how many were done;
        also at Ctrl-C: nobody could say else which changes were made.
        """
        done, unanswered, failed = 0, 0, list[str]()
        for number, (name, request) in enumerate(requests):
            if unanswered == UNANSWERED_MAX:
                failed.append(f"the other {len(requests) - number} were not tried, for nobody answers")
                break
            try:
                self.ask(request)
            except AdminError as error:
                unanswered = unanswered + 1 if isinstance(error, UnreachableError) else 0
                failed.append(f"{name}: {error.status} {error.reason}" if error.status else f"{name}: {error}")
            except KeyboardInterrupt:
                if len(requests) == 1:
                    raise
                begin = f"interrupted at {name}, which may be done or not: "
                raise FailedError(f"{begin}{_counted(done, failed, told, but)}") from None
            else:
                done, unanswered = done + 1, 0
        if failed:
            raise FailedError(_counted(done, failed, told, but))


def _counted(done: int, failed: Sequence[str], told: Callable[[int], str], but: str) -> str:
    return f"{told(done)}, {but} {'; '.join(failed)}" if failed else told(done)


def question_of(command: Command, given: Given) -> str:
    """A command as it was said, with each option: ``--force`` may be what can not be undone."""
    return f"`{command.words} {given.told}`"


def named(names: Sequence[str], one: str, many: str) -> str:
    """``2 topics (a, b)``: how many, and the first of them by name."""
    shown = ", ".join(names[:NAMED_MAX]) + (" and others" if len(names) > NAMED_MAX else "")
    return f"{len(names)} {one if len(names) == 1 else many}" + (f" ({shown})" if names else "")


def told(request: Request[Any]) -> str:
    """A request as it would be sent, for people."""
    import json
    from urllib.parse import urlencode

    asked = {key: _word(value) for key, value in (request.query or {}).items() if value is not None}
    text = f"{request.method} {request.path}{'?' + urlencode(asked) if asked else ''}"
    body = request.text if request.text is not None else None if request.body is None else json.dumps(request.body)
    return text if body is None else f"{text} {body}"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def request_of(command: Command, given: Given, topic: str | None = None) -> Request[Any]:
    """The request of a command that has no function; ``topic``: in place of the one that was given.

    Raises UsageError for names that can not be.
    """
    path = command.path
    values = {**given.places, **{key[1:]: value for key, value in given.values.items() if key[0] == "/"}}
    if topic is not None:
        values["topic"] = topic
    for name in (*command.places, *(one.key for one in command.options if one.where == "/")):
        plain = name.rstrip("?")
        if plain not in values:
            path = path.replace(f"/{{{name}}}", "")
            continue
        try:
            # Paths of transactions have a subscription encoded once.
            is_once = plain == "subscription" and path.startswith(_TRANSACTIONS)
            written = (_paths.text if is_once else _WRITTEN.get(plain, _paths.text))(values[plain])
        except UnicodeEncodeError:
            raise
        except ValueError as error:
            raise UsageError(str(error)) from None
        if plain == "place" and path.startswith(_TRANSACTIONS) and values[plain].startswith("non-persistent:"):
            raise UsageError(f"{values[plain]} is not persistent: transactions need messages that are stored")
        path = path.replace(f"{{{name}}}", written)
    query = {key[1:]: value for key, value in given.values.items() if key[0] == "?"} or None
    return Request(
        command.method,
        path if path.startswith("/") else f"/admin/v2/{path}",
        query,
        **_body(command, given),
        is_any=True,
        is_message=path.endswith("/examinemessage") or "/entry/" in path,
    )


def _body(command: Command, given: Given) -> dict[str, Any]:
    whole = given.values.get("@")
    if isinstance(whole, Plain):
        return {"text": str(whole)}
    if whole is not None:
        return {"body": whole}
    if any(one.where == "." for one in command.options):
        return {"body": members(given)}
    return {}


def members(given: Given) -> dict[str, Any]:
    """What was said of the members of a body."""
    found = {key[1:]: value for key, value in given.values.items() if key[0] == "."}
    # What concerns the lake has one name for S3, and another one for the rest.
    same = {key.removeprefix("s3M"): value for key, value in found.items() if key in _S3_PLACES}
    return found | {f"m{key}": value for key, value in same.items()}
