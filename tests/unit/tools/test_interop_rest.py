"""How answers to REST calls are compared."""

from __future__ import annotations

import pytest
from tools.interop.rest.calls import Publish, Story, get, post
from tools.interop.rest.comparing import Meant, compare, differences
from tools.interop.rest.recording import names_of
from tools.interop.rest.sending import Answer, answer_of


def test_a_call_is_known_by_what_is_sent_and_counted_where_it_comes_again() -> None:
    story = Story("two words", get("x"), Publish("t"), get("x"), post("x", {"a": 1}), post("x", raw=b"\xff"), post("y"))
    assert names_of([story]) == [
        "two words: GET x",
        "two words: GET x #2",
        'two words: POST x {"a": 1}',
        "two words: POST x \\xff",
        "two words: POST y",
    ]
    assert story.namespace == "public/two-words"
    assert post("/a/{ns}", "{ns}").target("public/n") == "/a/public/n"
    assert post("a/{ns}", "{ns}").content("public/n") == b'"public/n"'


@pytest.mark.parametrize(
    ("status", "body", "exact", "expected"),
    [
        (204, b"", False, Answer(204)),
        (
            200,
            b'{"a":{"b":[1,"x"]},"c":null}',
            False,
            {".": "object", "a": "object", "a.b": "array", "a.b[]": "string", "c": "null"},
        ),
        (200, b'{"a":{"b":[1,"x"]}}', True, {".": "object", "a": "object", "a.b": [1, "x"]}),
        (200, b"true", True, {".": True}),
        (200, b"true", False, {".": "boolean"}),
        (200, b"ok", False, {".": "string"}),
        (200, b"http://127.0.0.1:80/x", True, {".": "http://HOST/x"}),
        (404, b'{"reason":"no 127.0.0.1:99"}', False, Answer(404, "no HOST")),
        (404, b"plain", False, Answer(404, "plain")),
        (404, b"<html>what", False, Answer(404, "<html>")),
        (400, b"no\n at [Source: REDACTED (x)]", False, Answer(400, "<jackson>")),
        (500, b'{"reason":"x\\nStacktrace: y"}', False, Answer(500, "<exception>")),
    ],
)
def test_an_answer_is_taken_down(status: int, body: bytes, exact: bool, expected: Answer | dict[str, object]) -> None:
    found = answer_of(status, body, exact=exact)
    assert found == (Answer(status, "", expected) if isinstance(expected, dict) else expected)


@pytest.mark.parametrize(
    ("apache", "geminga", "expected"),
    [
        (Answer(204), Answer(204), []),
        (Answer(404, "a  b"), Answer(404, "a b"), ["answer: 404 a b | 404 a b"]),
        (Answer(200), Answer(204), ["answer: 200 | 204"]),
        (Answer(200), Answer(200, "", {".": 1}), ["body: none | some"]),
        (
            Answer(200, "", {"a": 1, "b": 2, "c": 1}),
            Answer(200, "", {"b": 3, "c": True, "d": 4}),
            ["only Apache: a 1", "value b: 2 | 3", "value c: 1 | True", "only Geminga: d 4"],
        ),
        (Answer(200, "", {"a": 1}), Answer(404, "x"), ["answer: 200 | 404 x"]),
    ],
)
def test_what_differs_is_said(apache: Answer, geminga: Answer, expected: list[str]) -> None:
    assert list(differences(apache, geminga)) == expected


def test_only_what_is_meant_passes_and_a_row_that_covers_nothing_is_named() -> None:
    apache = {"s: GET a": Answer(404, "x"), "s: GET b": Answer(500), "t: GET c": Answer(500)}
    geminga = {"s: GET a": Answer(404, "x"), "s: GET b": Answer(412, "y"), "t: GET c": Answer(412, "y")}
    row, idle = Meant("row", r"answer: 500 \| 4.. .+", "s: "), Meant("other", "answer: 501.*")
    compared = compare(apache, geminga, [row, idle])
    assert compared.calls == 3
    assert compared.unexplained == [("t: GET c", "answer: 500 | 412 y")]
    assert compared.meant == {row: 1, idle: 0}
    assert compared.idle == [idle]
