"""Sessions end by themselves, are bounded, and their names can not be made up."""

from __future__ import annotations

import pytest

from geminga.app.console.core.sessions import (
    IDLE_S,
    SESSIONS_MAX,
    SESSIONS_OF_ONE_MAX,
    WHOLE_S,
    Sessions,
    is_sealed,
    name_of,
    sealed,
)


def test_a_session_has_its_credentials_until_it_ends() -> None:
    sessions = Sessions()
    sessions.begin("a", "Bearer x", now_s=0)
    assert sessions.used("a", now_s=1) == "Bearer x"
    assert sessions.used("b", now_s=1) == ""
    sessions.end("a")
    assert sessions.used("a", now_s=2) == ""
    assert len(sessions) == 0


def test_a_session_that_nobody_uses_is_over() -> None:
    sessions = Sessions()
    sessions.begin("a", "x", now_s=0)
    assert sessions.used("a", now_s=IDLE_S) == "x"
    assert sessions.used("a", now_s=2 * IDLE_S) == "x"
    assert sessions.used("a", now_s=3 * IDLE_S + 1) == ""
    assert len(sessions) == 0


def test_a_page_that_refreshes_itself_keeps_no_session_alive() -> None:
    sessions = Sessions()
    sessions.begin("a", "x", now_s=0)
    assert sessions.used("a", now_s=IDLE_S, by_itself=True) == "x"
    assert sessions.used("a", now_s=IDLE_S + 1, by_itself=True) == ""


def test_a_session_is_over_after_some_hours_in_any_case() -> None:
    sessions = Sessions()
    sessions.begin("a", "x", now_s=0)
    for step in range(1, int(WHOLE_S / IDLE_S) + 1):
        assert sessions.used("a", now_s=step * IDLE_S) == "x"
    assert sessions.used("a", now_s=WHOLE_S + 1) == ""


def test_the_longest_idle_session_makes_room() -> None:
    sessions = Sessions()
    for number in range(SESSIONS_MAX):
        sessions.begin(f"s{number}", f"x{number}", now_s=0)
    assert sessions.used("s0", now_s=1) == "x0"
    sessions.begin("new", "y", now_s=2)
    assert len(sessions) == SESSIONS_MAX
    assert sessions.used("s1", now_s=3) == ""
    assert sessions.used("s0", now_s=3) == "x0"


def test_one_who_logs_in_again_and_again_pushes_nobody_else_out() -> None:
    sessions = Sessions()
    sessions.begin("other", "y", now_s=0)
    for number in range(SESSIONS_MAX + 5):
        sessions.begin(f"s{number}", "x", now_s=1)
    assert len(sessions) == SESSIONS_OF_ONE_MAX + 1
    assert sessions.used("other", now_s=2) == "y"


def test_sessions_that_are_over_go_with_the_next_one() -> None:
    sessions = Sessions()
    sessions.begin("a", "x", now_s=0)
    sessions.begin("b", "y", now_s=IDLE_S + 1)
    assert len(sessions) == 1


def test_a_seal_is_for_its_words_alone() -> None:
    seal = sealed(b"k", "form", "ab", "c")
    assert is_sealed(b"k", seal, "form", "ab", "c")
    for words in (("form", "a", "bc"), ("form", "abc"), ("formab", "c")):
        assert not is_sealed(b"k", seal, *words)
    assert not is_sealed(b"l", seal, "form", "ab", "c")
    assert not is_sealed(b"k", "", "form", "ab", "c")
    assert not is_sealed(b"k", "é", "form", "ab", "c")


@pytest.mark.parametrize(
    ("header", "name"),
    [
        (f"a=1; mine={'0' * 64}", "0" * 64),
        (f"mine={'0' * 63}", ""),
        (f"mine={'G' * 64}", ""),
        (f"mine=x; mine={'1' * 64}", "1" * 64),
        ("", ""),
    ],
)
def test_the_name_is_read_from_the_cookie(header: str, name: str) -> None:
    assert name_of(header, "mine") == name
