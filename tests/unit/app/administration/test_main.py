"""Exit codes, questions, partitions that failed, and what a command costs."""

from __future__ import annotations

import io
import os
import pty
import resource
import subprocess
import sys
from typing import Any, Final

import pytest

from geminga.admin.errors import ConflictError
from geminga.app.administration.arguments import UsageError, given
from geminga.app.administration.asking import caller_of, carried_out_by
from geminga.app.administration.groups import commands_of
from geminga.app.administration.main import main, run
from geminga.app.administration.session import FailedError
from geminga.app.commands.credentials import ClientSecurity
from geminga.client import http_headers
from support.processes.asked_broker import Asked, AskedBroker

#: CPU seconds of a command; what a change by accident loads, costs more.
CPU_S_MAX: Final = 0.25
VERSION_CPU_S_MAX: Final = 0.10
NOBODY: Final = "http://127.0.0.1:1"
AT_NOBODY: Final = ("--admin-url", NOBODY)


@pytest.fixture(autouse=True)
def own_home(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["admin"], 2, "Usage: geminga admin"),
        (["admin", "--help"], 0, "topicPolicies"),
        (["admin", "topics"], 2, "create-partitioned-topic"),
        (["admin", "topics", "--help"], 0, "create-partitioned-topic"),
        (["admin", "--help", "topics"], 0, "create-partitioned-topic"),
        (["admin", "topics", "stats", "--help"], 0, "--get-precise-backlog"),
        (["pulsar-admin", "topics", "skip", "-h"], 0, "It can not be undone"),
        (["pulsar-admin", "--version"], 0, "geminga 0."),
        (["pulsar-admin", "--tls-provider", "x", "tenants", "list", "--dry-run"], 0, "GET /admin/v2/tenants"),
        (["admin", "topicz"], 2, "there is no group topicz: is it topics?"),
        (["admin", "topics", "statz"], 2, "there is no command topics statz: is it stats?"),
        (["admin", "topics", "xyz"], 2, "there is no command topics xyz; `geminga admin topics --help` lists them"),
        (["admin", "xyz"], 2, "there is no group xyz; `geminga admin --help` lists them"),
        (["admin", "topics", "stats"], 2, "topics stats: TOPIC is missing"),
        (["admin", "topics", "stats", "a/b"], 2, "a/b"),
        (["admin", "functions", "list"], 1, "functions: Pulsar Functions is not built"),
        (["admin", "--admin-url", "localhost", "tenants", "list"], 2, "--admin-url: the address"),
        (["admin", "tenants", "list", "--admin-url", NOBODY], 1, "geminga: tenants list: GET http://127.0.0.1:1/"),
        (["admin", "tenants", "list", "--request-timeout", "-5"], 2, "--request-timeout: expected"),
        (["admin", "tenants", "list", "--request-timeout", "9999999999y"], 2, "--request-timeout: expected"),
        (["admin", "tenants", "list", "--context", "none"], 2, "there is no context 'none'"),
        (["admin", "tenants", "list", "-o", "xml"], 2, "'xml' is none of json, yaml, table"),
        (["admin", "tenants", "list", "--dry-run"], 0, "GET /admin/v2/tenants"),
        (["admin", "tenants", "delete", "a", "--admin-url", NOBODY], 2, "there is no terminal to ask at"),
        (["pulsar-admin", "tenants", "delete", "a", "--admin-url", NOBODY], 1, "no answer"),
        (["pulsar-admin", "namespaces", "clear-backlog", "a/b", "--admin-url", NOBODY], 2, "no terminal"),
        (["context"], 2, "Usage: geminga context"),
        (["completion", "tcsh"], 2, "expected geminga completion bash|zsh|fish"),
    ],
)
def test_exit_codes(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert run(words) == code
    printed = capsys.readouterr()
    assert said in printed.out + printed.err
    assert not printed.err or printed.err.startswith("geminga: ")


def a_topic_of_three_partitions(asked: Asked) -> bytes:
    """One of them is in use."""
    if not asked.change:
        return b'{"partitions":3}'
    if "-partition-1" in asked.path:
        raise ConflictError(asked.path, 409, "in use")
    return b""


def test_partitions_that_failed_are_named_and_the_others_done() -> None:
    parts = AskedBroker(a_topic_of_three_partitions)
    command = commands_of("topics")["unsubscribe"]
    said = given(command, ["a/b/c", "-s", "s", "-f"], {"yes": True})
    with pytest.raises(FailedError, match=r"a/b/c: done for 2 of 3 partitions, not for partition 1: 409 in use"):
        carried_out_by(parts, command, said, asks=True)
    path = "DELETE /admin/v2/persistent/a/b/c-partition-{}/subscription/s"
    assert parts.changes == [path.format(number) for number in range(3)]


def test_one_partition_is_asked_for_alone() -> None:
    parts = AskedBroker(a_topic_of_three_partitions)
    command = commands_of("topics")["unload"]
    assert carried_out_by(parts, command, given(command, ["a/b/c-partition-2"], {}), asks=True) is None
    assert parts.changes == ["PUT /admin/v2/persistent/a/b/c-partition-2/unload"]


@pytest.mark.parametrize("answer", [b"y\n", b"\n"])
def test_a_question_is_asked_at_a_terminal(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a yes the broker is asked, which is not there; without one nothing is."""
    ours, theirs = pty.openpty()
    os.write(ours, answer)
    with open(theirs, encoding="utf-8", closefd=False) as reads, open(theirs, "w", encoding="utf-8") as writes:
        monkeypatch.setattr("sys.stdin", reads)
        monkeypatch.setattr("sys.stderr", writes)
        if answer == b"y\n":
            assert run(["admin", "tenants", "delete", "a", *AT_NOBODY]) == 1
        else:
            with pytest.raises(SystemExit, match="1"):
                run(["admin", "tenants", "delete", "a", *AT_NOBODY])
        writes.write("<end>")
        writes.flush()
        shown = ""
        while "<end>" not in shown:
            shown += os.read(ours, 4000).decode()
    os.close(ours)
    assert "`tenants delete a` can not be undone. Go on? [y/N]" in shown
    assert ("no answer" in shown) == (answer == b"y\n")


def cpu_of(*words: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "geminga", *words], capture_output=True, check=False, timeout=30)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.parametrize(
    ("words", "most"),
    [
        (["--version"], VERSION_CPU_S_MAX),
        (["admin", "--help"], CPU_S_MAX),
        (["admin", "namespaces", "--help"], CPU_S_MAX),
        (["admin", "topics", "set-retention", "--help"], CPU_S_MAX),
        (["admin", "topics", "stats", "t", "--admin-url", NOBODY], CPU_S_MAX),
        (["pulsar-admin", "tenants", "list", "--admin-url", NOBODY], CPU_S_MAX),
        (["completion", "words", "--", "geminga admin topics "], CPU_S_MAX),
        (["completion", "words", "--", "geminga "], CPU_S_MAX),
        (["context", "list"], CPU_S_MAX),
        (["admin", "tenants", "list", "--auth-plugin", "token", "--auth-params", "token:x", *AT_NOBODY], CPU_S_MAX),
    ],
)
def test_a_command_costs_little(words: list[str], most: float) -> None:
    # The least of several: what else runs on the machine makes it more, never less.
    costs = []
    for _ in range(3):
        costs.append(cpu_of(*words))
        if costs[-1] <= most:
            break
    assert min(costs) <= most, costs


def test_an_address_is_asked_as_whom_its_context_says() -> None:
    caller = caller_of({"admin-url": "http://a:1/", "auth-plugin": "token", "auth-params": "token:x"}, 1)
    caller.close()
    with pytest.raises(UsageError, match="--admin-url"):
        caller_of({"admin-url": "a:1"}, 1)


@pytest.mark.parametrize("plugin", ["token", "org.apache.pulsar.client.impl.auth.AuthenticationToken"])
@pytest.mark.parametrize("form", ["token:x.y", "{file}", "x.y", '{{"token":"x.y"}}'])
def test_a_token_is_the_one_that_the_client_reads(plugin: str, form: str, tmp_path: Any) -> None:
    (tmp_path / "token").write_text("x.y\n", encoding="utf-8")
    security = ClientSecurity(plugin, form.format(file=f"file://{tmp_path}/token"))
    expected = http_headers(security.authentication())
    assert security.http("http://a:1") == (expected, None) == ({"Authorization": "Bearer x.y"}, None)


def test_a_token_without_its_file_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["admin", "tenants", "list", "--auth-plugin", "token", "--auth-params", "file:///nowhere/token"]
    assert run(words) == 1
    assert "/nowhere/token" in capsys.readouterr().err


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_who_stops_a_command_sees_no_traceback(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Any
) -> None:
    with (tmp_path / "out").open("w") as out:

        class Ended(io.StringIO):
            def write(self, _: str) -> int:
                raise error

            def fileno(self) -> int:
                return out.fileno()

        monkeypatch.setattr("sys.stdout", Ended())
        with pytest.raises(SystemExit, match="1"):
            main(["admin", "--help"])
        assert capsys.readouterr().err.strip() == ""


def test_an_answer_that_can_not_be_written_is_told_in_a_sentence() -> None:
    words = [sys.executable, "-m", "geminga", "admin", "tenants", "--help"]
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (1, "geminga: [Errno 28] No space left on device\n")
