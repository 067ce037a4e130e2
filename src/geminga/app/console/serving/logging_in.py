"""What a login form says of who somebody is, as the header Authorization has it."""

from __future__ import annotations

import base64
from collections.abc import Mapping

from geminga.app.console.tables import Refusal


def authorization_of(form: Mapping[str, str]) -> str:
    """From a token, or a user's name and password; raises Refusal."""
    token, user, password = form.get("credentials", "").strip(), form.get("user", ""), form.get("password", "")
    if token and not user:
        if not token.isascii() or not token.isprintable() or " " in token:
            raise Refusal("A token is one word of letters, digits, dots, - and _.", 401)
        return f"Bearer {token}"
    if user and not token:
        if ":" in user:
            raise Refusal("A user's name has no colon.", 401)
        return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"
    raise Refusal("Give either a token, or a user and a password.", 401)
