"""Rights are taken from the role that the row names."""

from __future__ import annotations

import json

from support.worlds.console_pages import Visiting, visit
from support.worlds.rest_world import ask

RIGHTS = "/admin/v2/namespaces/public/default/permissions"


def test_a_role_that_ends_with_a_blank_is_not_taken_for_the_one_without() -> None:
    async def story(visitor: Visiting) -> None:
        for role in ("joe", "joe%20"):
            answer = await ask(visitor.application, "POST", f"{RIGHTS}/{role}", b'["consume"]')
            assert answer.status in (200, 204), answer
        granted = await visitor.act("grant", {"produce": "yes"}, namespace="public/default", role="joe ")
        assert granted.status == 200
        found = json.loads((await ask(visitor.application, "GET", RIGHTS, b"")).body)
        assert (found["joe"], sorted(found["joe "])) == (["consume"], ["consume", "produce"])
        # One that has nothing yet was typed so.
        await visitor.act("grant", {"produce": "yes"}, namespace="public/default", role=" ann ")
        assert (await visitor.act("revoke", {}, namespace="public/default", role="ann")).status == 200
        assert (await visitor.act("revoke", {}, namespace="public/default", role="joe ")).status == 200
        assert json.loads((await ask(visitor.application, "GET", RIGHTS, b"")).body) == {"joe": ["consume"]}

    visit(story)
