"""Which topics hold dead letters, and where those came from."""

from __future__ import annotations

from geminga.app.console.core.letters import LetterOrigin, is_dead_letters, letters_topics, origin_of, waiting_letters

LETTERS = "persistent://public/default/orders-billing-DLQ"


def test_topics_of_letters_are_found_by_their_names() -> None:
    names = [
        "persistent://public/default/orders",
        "persistent://public/default/orders-billing-DLQ-partition-1",
        "persistent://public/default/orders-billing-DLQ-partition-0",
        "persistent://public/default/a-s-RETRY",
        "persistent://public/default/x-DLQ-refused",
        "no topic://",
    ]
    assert letters_topics(names) == ["persistent://public/default/a-s-RETRY", LETTERS]
    assert is_dead_letters(f"{LETTERS}-partition-0")
    assert not is_dead_letters("persistent://public/default/a-s-RETRY")


def test_letter_says_where_it_came_from_and_goes() -> None:
    properties = {
        "REAL_TOPIC": "persistent://public/default/orders-partition-2",
        "REAL_SUBSCRIPTION": "billing",
        "ORIGIN_MESSAGE_ID": "3:7:2",
        "RECONSUMETIMES": "16",
        "why": "no such customer",
    }
    assert origin_of(LETTERS, properties) == LetterOrigin(
        "persistent://public/default/orders-partition-2",
        "billing",
        "3:7:2",
        "16",
        {"why": "no such customer"},
        "persistent://public/default/orders",
    )


def test_letter_that_names_no_allowed_origin_has_no_target() -> None:
    assert origin_of(LETTERS, {}).target == ""
    elsewhere = {"REAL_TOPIC": "persistent://other/ns/t"}
    assert origin_of(LETTERS, elsewhere).target == ""
    assert origin_of(LETTERS, elsewhere, "persistent://other/").target == "persistent://other/ns/t"


def test_what_was_sent_back_counts_no_more() -> None:
    assert waiting_letters({"subscriptions": {"mine": {"msgBacklog": 2}}}, 5, "mine") == 2
    assert waiting_letters({"subscriptions": {}}, 5, "mine") == 5
    assert waiting_letters({}, 0, "mine") == 0
