"""What the client commands make of their arguments."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from threading import Thread  # noqa: TID251  # writes, or interrupts, while a command waits

import pytest
from typer.testing import CliRunner

from geminga import Standalone
from geminga.app.commands.cli import app_for
from geminga.app.commands.client_commands import choice, contents, key_values, message_id, produce
from geminga.app.commands.client_session import run_client
from geminga.app.commands.perf_commands import Every
from geminga.client import ConsumerType, InvalidUrl, MessageId, MessageTooBig, blocking
from geminga.model.errors import ConfigurationError


@pytest.fixture(scope="module")
def broker():
    with Standalone() as running:
        yield running


def test_names_of_enumerations_are_taken_in_any_case() -> None:
    assert choice(ConsumerType, "-t", "key_shared") is ConsumerType.KeyShared
    assert choice(ConsumerType, "-t", "Failover") is ConsumerType.Failover
    with pytest.raises(ConfigurationError, match="expected one of Exclusive"):
        choice(ConsumerType, "-t", "odd")


def test_message_ids_are_words_or_ledger_and_entry() -> None:
    assert message_id("earliest") == MessageId.earliest
    assert message_id("latest") == MessageId.latest
    assert message_id("3:7") == MessageId(-1, 3, 7, -1)
    for wrong in ("3", "3:", "a:b", "-1:2"):
        with pytest.raises(ConfigurationError):
            message_id(wrong)


def test_properties_keep_equals_signs_of_their_values() -> None:
    assert key_values(["a=b=c"]) == {"a": "b=c"}
    with pytest.raises(ConfigurationError):
        key_values(["=b"])


def test_contents_are_texts_then_files_as_often_as_wanted(tmp_path) -> None:
    file = tmp_path / "message"
    file.write_bytes(b"\x00file\n")
    assert list(contents(["text"], [str(file)], 2)) == [b"text", b"\x00file\n"] * 2


def test_a_line_of_standard_input_is_stored_before_the_next_one_is_there(broker, monkeypatch, capsys) -> None:
    """As of ``tail -f``: who waits for a line keeps neither the batch nor the connection waiting."""
    reading, writing = os.pipe()
    got: list[bytes] = []

    def write() -> None:
        try:
            for line in (b"one", b"two\r", b"three"):
                os.write(writing, line[:2])
                os.write(writing, line[2:] + b"\n")
                got.append(consumer.receive(10_000).data())
            os.write(writing, b"\nrest")
        finally:
            os.close(writing)

    with blocking.connect(broker.service_url) as client, os.fdopen(reading) as standard_input:
        consumer = client.subscribe("lines", "s")
        monkeypatch.setattr(sys, "stdin", standard_input)
        thread = Thread(target=write)
        thread.start()
        produce("lines", stdin=True, url=broker.service_url)
        thread.join()
        got += [consumer.receive(10_000).data() for _ in range(2)]
    assert got == [b"one", b"two", b"three", b"", b"rest"]
    assert capsys.readouterr().out == "5 messages sent\n"


def test_sending_that_fails_amid_says_that_others_may_be_stored(broker, tmp_path, capsys) -> None:
    (tmp_path / "small").write_bytes(b"x")
    (tmp_path / "large").write_bytes(bytes(6 << 20))
    files = [str(tmp_path / name) for name in ("small", "large", "small")]
    with pytest.raises(SystemExit, match="1"):
        produce("partly", files=files, num_produce=2, url=broker.service_url)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.endswith("; 6 messages were given, some of them may be stored\n")
    # Of one the reason is all there is to say.
    with pytest.raises(MessageTooBig):
        produce("partly", files=files[1:2], url=broker.service_url)


def test_sending_that_is_interrupted_is_no_success(broker, monkeypatch, interruptible) -> None:
    reading, writing = os.pipe()

    def interrupt() -> None:
        os.write(writing, b"one\n")
        consumer.receive(10_000)
        os.kill(os.getpid(), signal.SIGINT)

    with blocking.connect(broker.service_url) as client, os.fdopen(reading) as standard_input:
        consumer = client.subscribe("interrupted", "s")
        monkeypatch.setattr(sys, "stdin", standard_input)
        thread = Thread(target=interrupt)
        thread.start()
        with pytest.raises(SystemExit, match="1"):
            produce("interrupted", stdin=True, url=broker.service_url)
        thread.join()
        os.close(writing)


def test_figures_that_nobody_reads_any_more_end_the_run() -> None:
    """As of ``perf produce | head``, which went on for ever."""

    def call() -> None:
        raise BrokenPipeError

    async def work() -> None:
        async with asyncio.timeout(10):
            with Every(0.001, call):
                await asyncio.Event().wait()

    with pytest.raises(BrokenPipeError):
        asyncio.run(work())


@pytest.mark.parametrize(
    "words",
    [
        ["perf", "produce", "t", "--rate", "inf"],
        ["perf", "consume", "t", "--stats-interval-seconds", "inf"],
        ["dead-letters", "redrive", "t", "--wait", "inf"],
    ],
)
def test_numbers_without_end_are_wrong_words(words) -> None:
    found = CliRunner().invoke(app_for(words), [*words, "--url", "pulsar://127.0.0.1:1"])
    assert (found.exit_code, words[3] in found.stderr) == (2, True)


def test_wrong_url_is_the_clients_error() -> None:
    async def nothing(_: object) -> None:
        pass

    with pytest.raises(InvalidUrl):
        run_client("ftp://x", "", nothing)


def test_periodic_calls_end_with_the_block() -> None:
    calls: list[int] = []

    async def work() -> int:
        reached = asyncio.Event()

        def call() -> None:
            calls.append(1)
            if len(calls) == 3:
                reached.set()

        with Every(0.001, call):
            await reached.wait()
        seen = len(calls)
        later = asyncio.Event()
        asyncio.get_running_loop().call_later(0.01, later.set)
        await later.wait()
        return seen

    assert asyncio.run(work()) == len(calls)
