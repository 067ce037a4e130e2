"""What the client commands make of their arguments."""

from __future__ import annotations

import pytest

from geminga.app.commands.client_commands import choice, contents, key_values, message_id
from geminga.app.commands.client_session import run_client
from geminga.app.commands.perf_commands import Every
from geminga.client import ConsumerType, InvalidUrl, MessageId
from geminga.model.errors import ConfigurationError


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
    assert list(contents(["text"], [str(file)], False, 2)) == [b"text", b"\x00file\n"] * 2


def test_wrong_url_is_the_clients_error() -> None:
    async def nothing(_: object) -> None:
        pass

    with pytest.raises(InvalidUrl):
        run_client("ftp://x", "", nothing)


def test_periodic_calls_end_with_the_block() -> None:
    import asyncio

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
