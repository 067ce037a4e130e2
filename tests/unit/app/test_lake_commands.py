"""Which ledgers a command sends to the lake, and what the commands about holes ask a broker for."""

from __future__ import annotations

import json
from http.server import ThreadingHTTPServer

import pytest
from typer.testing import CliRunner

from geminga.app.commands.lake_commands import commands, first_to_stay
from support.processes.web_answers import Answering, Served

LEDGERS = [{"ledgerId": number, "size": size} for number, size in ((1, 100), (4, 100), (9, 100), (12, 0))]


@pytest.mark.parametrize(
    ("threshold", "first"), [(0, 12), (99, 12), (100, 9), (199, 9), (250, 4), (299, 4), (300, None)]
)
def test_the_newest_bytes_up_to_the_threshold_stay(threshold, first):
    assert first_to_stay(LEDGERS, threshold) == first


def test_a_topic_with_one_ledger_or_none_keeps_it():
    assert first_to_stay([], 0) is None
    assert first_to_stay([{"ledgerId": 1, "size": 5}], 0) is None


#: The size of the open ledger stands apart.
STATS = {"ledgers": LEDGERS, "currentLedgerSize": 150}
#: Of a topic that was loaded anew after the command: nothing was begun since, and nothing is known of before.
SAID = {
    "internalStats": STATS,
    "offload": {"status": "NOT_RUN", "lastError": ""},
    "lake": {"ledgers": [{"isOffloaded": True}], "restore": {"status": "NOT_RUN", "restored": 0, "lastError": ""}},
}
HOLE = {"ledgerId": 17, "entries": 3, "isLost": True, "error": "file is not there", "unreadOf": {"sub": 3}}


#: Of each request to ``admin``.
credentials: list[str] = []


@pytest.fixture
def admin():
    """A server that has one hole, and notes what it is asked, and with which credentials: its address, and that."""
    credentials.clear()
    asked: list[tuple[str, str, object]] = []

    class Answers(Answering):
        def do_GET(self) -> None:
            said = SAID.get(self.path.rpartition("/")[2], {"holes": [HOLE], "skipped": []})
            self._note(said)

        def do_PUT(self) -> None:
            self._note(HOLE)

        def _note(self, said: object) -> None:
            body = self.asked_body()
            credentials.append(self.headers.get("Authorization") or "")
            asked.append((self.command, self.path, json.loads(body) if body else None))
            self.answer(json.dumps(said).encode())

    with Served(ThreadingHTTPServer(("127.0.0.1", 0), Answers)) as server:
        yield server.url, asked


def run(address: str, *words: str):
    return CliRunner().invoke(commands, [*words, "--admin-url", address])


def test_holes_are_listed_and_given_up_by_name(admin):
    address, asked = admin
    path = "/admin/v2/persistent/public/default/orders/holes"
    told = run(address, "holes", "orders", "--ledger", "17", "--ledger", "19", "--json")
    assert json.loads(told.stdout)["holes"] == [HOLE]
    told = run(address, "skip-hole", "orders", "17", "--dry-run", "--json")
    assert json.loads(told.stdout) == {"wouldLose": HOLE}
    refused = run(address, "skip-hole", "orders", "18", "--dry-run")
    assert refused.exit_code != 0
    assert "Ledger 18 can be read" in str(refused.exception)
    assert [each[:2] for each in asked] == [
        ("GET", f"{path}?ledgerId=17&ledgerId=19"),
        ("GET", f"{path}?ledgerId=17"),
        ("GET", f"{path}?ledgerId=18"),
    ]
    asked.clear()
    told = run(address, "skip-hole", "orders", "17", "--force", "--json")
    assert json.loads(told.stdout) == {"lost": HOLE}
    run(address, "skip-hole", "orders", "17", "--whole")
    assert asked == [
        ("PUT", f"{path}/skip", {"ledgerId": 17, "force": True, "whole": False}),
        ("PUT", f"{path}/skip", {"ledgerId": 17, "force": False, "whole": True}),
    ]
    asked.clear()
    told = run(address, "skip-hole", "orders", "17", "--end", "--dry-run", "--json")
    assert json.loads(told.stdout) == {"wouldLose": HOLE}
    told = run(address, "skip-hole", "orders", "17", "--end", "--force", "--json")
    assert json.loads(told.stdout) == {"lost": HOLE}
    end = {"ledgerId": 17, "end": True}
    assert asked == [
        ("PUT", f"{path}/skip", {**end, "force": False, "dry": True}),
        ("PUT", f"{path}/skip", {**end, "force": True, "dry": False}),
    ]
    # Which ledger goes is always said.
    assert run(address, "skip-hole", "orders").exit_code == 2


@pytest.mark.parametrize("how", ["options", "environment"])
def test_who_asks_is_said_where_authentication_is_on(admin, monkeypatch: pytest.MonkeyPatch, how: str):
    address, asked = admin
    said = ("--auth-plugin", "token", "--auth-params", "token:abc")
    if how == "environment":
        monkeypatch.setenv("GEMINGA_AUTH_PLUGIN", said[1])
        monkeypatch.setenv("GEMINGA_AUTH_PARAMS", said[3])
        said = ()
    told = run(address, *said, "holes", "orders", "--json")
    assert told.exit_code == 0, told.output
    assert (len(asked), credentials) == (1, ["Bearer abc"])


@pytest.mark.parametrize(("size", "first"), [(0, 12), (150, 12), (249, 12), (250, 9), (349, 9), (350, 4), (449, 4)])
def test_the_bytes_of_the_open_ledger_are_the_newest_that_stay(admin, size: int, first: int):
    address, asked = admin
    told = run(address, "offload", "orders", "-s", str(size))
    assert told.exit_code == 0, told.output
    assert asked[-1][:2] == ("PUT", "/admin/v2/persistent/public/default/orders/offload")
    assert asked[-1][2] == {"ledgerId": first, "entryId": 0, "partitionIndex": -1}


def test_nothing_is_offloaded_while_all_ledgers_are_smaller_than_what_is_to_stay(admin):
    address, asked = admin
    assert "Nothing to offload" in run(address, "offload", "orders", "-s", "450").stdout
    assert [each[0] for each in asked] == ["GET"]


@pytest.mark.parametrize("words", [("offload", "orders", "--wait"), ("restore", "orders")])
def test_what_a_topic_that_was_loaded_anew_left_undone_is_no_success(admin, words):
    address, asked = admin
    told = run(address, *words)
    assert told.exit_code != 0
    assert "loaded anew" in str(told.exception)
    assert "success" not in told.output
    assert [each[0] for each in asked] == ["GET", "PUT", "GET"]


def test_a_restore_after_which_ledgers_are_in_the_lake_is_no_success(admin, monkeypatch):
    """Whoever removes the directory behind it would lose them."""
    address, _ = admin
    restored = {"status": "SUCCESS", "restored": 2, "lastError": ""}
    for stays in (True, False):
        monkeypatch.setitem(SAID, "lake", {"ledgers": [{"isOffloaded": stays}], "restore": restored})
        result = run(address, "restore", "orders")
        assert (result.exit_code == 0) is not stays
        told = str(result.exception) if stays else result.output
        assert f"2 ledgers are on the bookies alone again, {int(stays)} are in the lake" in told
