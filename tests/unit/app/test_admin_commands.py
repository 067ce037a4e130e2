"""How commands outside ``geminga admin`` ask a broker."""

from __future__ import annotations

import pytest

from geminga.app.commands import admin_commands
from geminga.model.errors import UnavailableError


@pytest.mark.parametrize(
    ("topic", "path"),
    [("orders", "public/default/orders"), ("persistent://a/b/c d/e%", "a/b/c%20d%2Fe%25")],
)
def test_topic_becomes_its_path(topic: str, path: str) -> None:
    assert admin_commands.place_of(topic) == path


def test_broker_that_does_not_answer_is_an_error_with_its_address() -> None:
    with pytest.raises(UnavailableError, match=r"http://127\.0\.0\.1:1/admin: no answer"):
        admin_commands.ask("http://127.0.0.1:1", "/admin")
