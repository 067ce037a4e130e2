"""Roles in the log, as Pulsar's anonymizer writes them."""

from __future__ import annotations

import pytest

from geminga.broker.access.core.principal import ANONYMOUS, Principal
from geminga.broker.access.core.shown_roles import shown_principal

#: ``printf jane | openssl dgst -sha256 -binary | base64``, and of MD5.
SHA256, MD5 = "SHA-256:gfj23eiDZfOSh5bseqU/coILBtuGZPX+dqfrE+JFRqI=", "MD5:WEShXnZWP+3RGED9b0Dqew=="


@pytest.mark.parametrize(
    ("anonymizer", "shown"),
    [("NONE", "jane"), ("REDACTED", "[REDACTED]"), ("hash:SHA256", SHA256), ("hash:MD5", MD5)],
)
def test_role_is_shown_as_the_setting_says(anonymizer: str, shown: str) -> None:
    assert shown_principal(Principal("jane"), anonymizer) == shown
    assert shown_principal(Principal("jane", "jane"), anonymizer) == f"{shown} for {shown}"
    assert shown_principal(ANONYMOUS, anonymizer) == "anonymous"
