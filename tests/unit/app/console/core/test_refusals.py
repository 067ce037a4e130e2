"""What goes wrong is a sentence, and never 500."""

from __future__ import annotations

import pytest

from geminga.admin import UnreachableError
from geminga.admin.errors import error_of
from geminga.app.console.core.refusals import explained
from geminga.model.errors import UnavailableError


@pytest.mark.parametrize(
    ("status", "shown", "begins"),
    [
        (401, 403, "You may not do this: because."),
        (403, 403, "You may not do this: because."),
        (404, 404, "It is not there: because."),
        (409, 409, "It can not be done as things are: because."),
        (422, 422, "The broker refused: because."),
        (500, 502, "The broker failed: because."),
        (501, 501, "This broker has no such feature: because."),
        (503, 503, "The broker can not tell now: because."),
    ],
)
def test_answers_of_the_administration(status: int, shown: int, begins: str) -> None:
    assert explained(error_of("GET /x", status, "because.\n")) == (shown, begins)


def test_what_is_no_answer() -> None:
    assert explained(UnreachableError("GET /x", 0, "no answer within 10 seconds")) == (
        504,
        "The broker did not answer: no answer within 10 seconds.",
    )
    assert explained(ValueError("a namespace is tenant/namespace, not 'x'")) == (
        400,
        "This can not be: a namespace is tenant/namespace, not 'x'.",
    )
    assert explained(UnavailableError("closing"))[0] == 503
