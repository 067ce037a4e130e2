"""Commands, all of them: what they ask, next to what ``pulsar-admin`` asks; what they take; what they never do.

``tools/interop/admin/commands.jsonl`` has what version 4.0.8 of it tells of its commands, and the requests that it was
seen to send for them; ``commands-5.jsonl`` those that 5.0.1 adds.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, unquote_plus, urlsplit

import pytest
from tools.interop.admin.recorded import Recorded, recorded, recorded_later
from tools.pulsar_admin_page import PAGE, page

from geminga.admin.calls.nouns import NOUNS, POLICY_SETS
from geminga.admin.errors import AdminError, PreconditionFailedError
from geminga.app.administration.arguments import UsageError, given
from geminga.app.administration.asking import carried_out_by
from geminga.app.administration.command import Command
from geminga.app.administration.groups import GROUPS, UNBUILT, commands_of
from geminga.app.administration.helping import of_command, of_group, texts_of
from geminga.app.administration.session import CHANGING_LOOKS, FailedError
from support.processes.asked_broker import Asked, AskedBroker

ALL: Final = [command for group in GROUPS for command in commands_of(group).values()]
BUILT: Final = [one for one in (*recorded(), *recorded_later()) if one.group in GROUPS]
#: Commands whose requests differ, with the reason.
MEANT: Final = {
    "namespaces get-anti-affinity-namespaces": "it is asked for at the path of Pulsar 2, not of Pulsar 1",
    "schemas extract": "runs a class of Java",
    "persistent grant-permission": "takes several actions with commas between, as topics grant-permission does",
    "topics delete": "all topics of the expression are looked for, in both domains",
}


#: Commands that pulsar-admin lets say nothing, which brokers refuse.
NEEDED_HERE: Final = frozenset(
    {
        "namespaces get-topic-positions",
        "namespaces set-schema-compatibility-strategy",
        "transactions scale-transactionCoordinators",
    }
)


class Sent(NamedTuple):
    method: str
    path: str
    query: Mapping[str, str]
    body: Any


def answer_of(asked: Asked) -> bytes:
    """Of a broker that tells of a topic with two partitions, and refuses the rest."""
    path = asked.path
    if asked.change:
        return b""
    if path.endswith("/partitions"):
        return b'{"partitions":2}' if "/parts" in path else b'{"partitions":0}'
    if path.startswith("/admin/v2/tenants/"):
        return b'{"adminRoles":["z"],"allowedClusters":["y"]}'
    if path.startswith("/lookup/"):
        return b'{"brokerUrl":"pulsar://a:1"}'
    if re.fullmatch(r"/admin/v2/((non-)?persistent/\w+/\w+(/partitioned)?|clusters|tenants)", path):
        return b"[]"
    raise PreconditionFailedError(path, 412, "no")


def _sent(asked: Asked) -> Sent:
    query = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in asked.query.items()
        if value is not None
    }
    return Sent(asked.method, asked.path, query, _body((asked.body or b"").decode()))


def _body(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text or None


def asked(command: Command, words: list[str], **common: Any) -> list[Sent]:
    """What a command asks the broker, until it is refused."""
    broker = AskedBroker(answer_of)
    try:
        carried_out_by(broker, command, given(command, words, {"yes": True, **common}), asks=True)
    except (AdminError, FailedError):
        pass
    return [_sent(one) for one in broker.asked]


def command_of(words: str) -> Command:
    group, _, name = words.partition(" ")
    return commands_of(group)[name]


def alike(sent: Sent) -> Sent:
    """Without what says nothing: what is false or empty, order, how a name is encoded, the time of now."""
    if sent.path.endswith("/messageTTL") and sent.method == "DELETE":
        return sent._replace(query={key: value for key, value in sent.query.items() if key == "isGlobal"})
    query = {key: value for key, value in sent.query.items() if value != "false" or key == "forcedTerminateTopic"}
    body = sent.body
    if isinstance(body, dict):
        own = {"limit", "empty", "excluded", "batchIndex", "batchSize"}
        body = {key: value for key, value in body.items() if value is not False and key not in own}
    path = re.sub(r"/\d{13}$|/\{time\}$", "/{time}", unquote_plus(sent.path).replace("%2F", "/").replace("%25", "%"))
    return Sent(sent.method, path, query, sorted(body) if isinstance(body, list) else body)


def theirs(call: list[Any]) -> list[Sent]:
    found = []
    for method, target, *body in call[1]:
        parts = urlsplit(target)
        found.append(Sent(method, parts.path, dict(parse_qsl(parts.query)), _body(body[0] if body else "")))
    return found


def compared(one: Recorded, files: Path) -> Iterator[str]:
    command = command_of(one.words)
    for call in one.calls:
        ours = [alike(sent) for sent in asked(command, [word.replace("{files}", str(files)) for word in call[0]])]
        expected = [alike(sent) for sent in theirs(call)]
        if command.is_by_partition or command.function == "create-shadow":
            ours = [sent for sent in ours if not sent.path.endswith("/partitions")]
            expected = [sent for sent in expected if not sent.path.endswith("/partitions")]
        if "offload-policies" in one.words:
            # What is S3's is left out by pulsar-admin for other drivers, and has no effect there.
            ours, expected = (
                [sent._replace(body=_of_all_drivers(sent.body)) for sent in each] for each in (ours, expected)
            )
        # It stopped where it was refused.
        if ours[: len(expected)] != expected:
            yield f"{one.words} {' '.join(call[0])}: asks {ours}, not {expected}"


def _of_all_drivers(body: Any) -> Any:
    return (
        {key: value for key, value in body.items() if not key.startswith(("s3", "fileSystemDriver"))}
        if isinstance(body, dict)
        else body
    )


def test_requests_are_those_of_pulsar_admin(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type":"STRING","schema":"","properties":{"a":"b"}}', encoding="utf-8")
    found = [line for one in BUILT if one.words not in MEANT for line in compared(one, tmp_path)]
    assert not found, "\n".join(found)
    assert sum(len(one.calls) for one in BUILT) > 800


def test_each_command_of_pulsar_admin_is_there_with_its_options() -> None:
    found = []
    for one in BUILT:
        command = commands_of(one.group).get(one.words.partition(" ")[2])
        if command is None:
            found.append(f"{one.words} is not there")
            continue
        needed = [place for place in command.places if not place.endswith("?")]
        if len(needed) > one.places:
            found.append(f"{one.words} needs {needed}, {one.places} places are given")
        for names, takes_value, _ in one.options:
            options = [command.option(name) for name in names]
            if any(option is None or option.takes_value != takes_value for option in options):
                found.append(f"{one.words} lacks {names}, or takes no value there")
    assert not found, "\n".join(found)
    assert len(BUILT) == 493
    assert {one.group for one in recorded()} - set(GROUPS) == {*UNBUILT} - {"sink", "source", "scalable-topics"} | {
        "documents"
    }


def test_options_are_needed_where_pulsar_admin_needs_them() -> None:
    found = []
    for one in BUILT:
        command = command_of(one.words)
        for names, _, must in one.options:
            option = command.option(names[0])
            if option is not None and option.need == "!" and not must and one.words not in NEEDED_HERE:
                found.append(f"{one.words} {names} must be given here alone")
    assert not found, "\n".join(found)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text("{}", encoding="utf-8")
    runs = 0
    for one in BUILT:
        for words, _ in one.calls:
            with redirect_stdout(io.StringIO()) as out:
                sent = asked(
                    command_of(one.words), [word.replace("{files}", str(tmp_path)) for word in words], dry_run=True
                )
            changing = [each for each in sent if each.method != "GET" or each.path in CHANGING_LOOKS]
            assert not changing, one.words
            assert out.getvalue() or one.words in ("topics delete", "topics offload"), one.words
            runs += 1
    assert runs > 800


def test_a_flag_of_5_0_is_sent_where_it_is_said() -> None:
    one = command_of("namespaces set-is-allow-auto-update-schema")
    said = {
        (): {},
        ("--enable-for-replicator",): {"allowAutoUpdateSchemaWithReplicator": "true"},
        ("--enable-for-replicator=false",): {"allowAutoUpdateSchemaWithReplicator": "false"},
    }
    for words, query in said.items():
        (sent,) = asked(one, ["public/ns", "--disable", *words])
        assert (sent.method, sent.query, sent.body) == ("POST", query, False)


def test_what_can_not_be_undone_is_marked_as_in_the_calls() -> None:
    calls = {(call.method, call.path): call.destroys for noun in NOUNS for call in noun.calls}
    differing = [
        one.words for one in ALL if not one.function and calls.get((one.method, one.path), False) != one.destroys
    ]
    assert differing == []
    assert {one.words for one in ALL if one.function and one.destroys} == {
        "clusters delete",
        "namespaces clear-backlog",
        "namespaces unsubscribe",
        "persistent reset-cursor",
        "topics delete",
        "topics expire-messages",
        "topics reset-cursor",
    }


def test_what_can_not_be_undone_is_not_done_without_a_terminal() -> None:
    for one in BUILT:
        command = command_of(one.words)
        if command.destroys:
            broker = AskedBroker(answer_of)
            words = one.calls[-1][0]
            with pytest.raises(UsageError, match="there is no terminal to ask at: nothing was done"):
                carried_out_by(
                    broker, command, given(command, [word for word in words if word != "-force"], {}), asks=True
                )
            assert broker.asked == [], one.words


def test_paths_are_those_of_calls_or_refused_by_the_broker() -> None:
    known = {(call.method, call.path) for noun in NOUNS for call in noun.calls}
    for policies in POLICY_SETS:
        owner = "{topic}/" if policies.owner == "topic" else "namespaces/{namespace}/"
        known |= {(method, owner + one.path) for one in policies.policies for method in ("GET", "DELETE", one.set_by)}
    unknown = {one.words for one in ALL if not one.function and (one.method, one.path.replace("?}", "}")) not in known}
    assert unknown == UNKNOWN


#: Commands of what is not built: there is no call for them either.
UNKNOWN: Final = frozenset(
    {
        "metadata-migration start",
        "namespaces list-cluster",
        "proxy-stats connections",
        "proxy-stats topics",
    }
)


def test_the_page_is_what_the_rows_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tools.pulsar_admin_page"


def test_help_tells_of_each_command_and_group() -> None:
    for group in GROUPS:
        commands = commands_of(group)
        text = of_group("geminga admin", group)
        assert all(name in text for name in commands)
        assert all(texts_of(list(commands.values())).values())
    for command in ALL:
        text = of_command("geminga admin", command)
        assert all(name in text for option in command.options for name in option.names), command.words
