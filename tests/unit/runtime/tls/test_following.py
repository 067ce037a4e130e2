"""A context that follows its files: the newest that is good, and what is wrong said once."""

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

from geminga.model.errors import ConfigurationError
from geminga.runtime.tls import following
from geminga.runtime.tls.contexts import server_context
from geminga.runtime.tls.following import FollowedContext
from geminga.runtime.tls.material import utc_now
from geminga.runtime.tls.settings import Material, Named, PeerCertificate, Rules
from support.processes.certificates import Authority, parts_of


class Files:
    """A pair of files that are exchanged."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "authority")
        self.certificate, self.key = directory / "own.pem", directory / "own.key"
        self.material = Material(
            Named("tlsCertificateFilePath", str(self.certificate)), Named("tlsKeyFilePath", str(self.key)), Named("t")
        )

    def put(self, name: str, *, days: tuple[int, int] = (-1, 30), without_key: bool = False) -> None:
        """Exchange them, each at once, as an operator's tools do."""
        for new, place in zip(
            parts_of(self.authority.store(name, days=days)), (self.certificate, self.key), strict=True
        ):
            if place is self.certificate or not without_key:
                os.replace(new, place)

    def follow(self, **options: bool) -> FollowedContext:
        make = partial(server_context, self.material, Rules(), PeerCertificate.UNASKED)
        return FollowedContext("the port", [str(self.certificate), str(self.key)], make, **options)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    found = Files(tmp_path)
    found.put("first")
    return found


def served(followed: FollowedContext) -> str:
    identity = followed.made.identity
    assert identity is not None
    return identity.subject


def test_new_files_are_what_new_connections_get(files: Files, caplog) -> None:
    followed = files.follow()
    before = followed.context()
    assert not followed.look()
    files.put("second")
    assert followed.context() is before
    assert followed.look()
    assert served(followed) == "CN=second"
    assert followed.context() is not before
    assert "new certificate of CN=second, SHA-256" in caplog.text


def test_what_is_wrong_at_the_start_is_raised(files: Files) -> None:
    files.put("second", without_key=True)
    with pytest.raises(ConfigurationError, match="not the private key of"):
        files.follow()


@pytest.mark.parametrize("kind", ["half exchanged", "expired", "early", "broken", "gone"])
def test_files_that_are_not_good_leave_the_old_ones_and_are_told_once(files: Files, kind: str, caplog) -> None:
    followed = files.follow()
    if kind == "half exchanged":
        files.put("second", without_key=True)
    elif kind == "broken":
        files.certificate.write_text("nothing")
    elif kind == "gone":
        files.certificate.unlink()
    else:
        files.put("second", days=(-9, -5) if kind == "expired" else (5, 9))
    assert not followed.look()
    assert not followed.look()
    assert served(followed) == "CN=first"
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "stay in use" in record.message
    assert followed.complaint in record.message
    files.put("third")
    assert followed.look()
    assert (served(followed), followed.complaint) == ("CN=third", "")


def test_operator_who_asks_again_is_told_again(files: Files, caplog) -> None:
    followed = files.follow()
    assert followed.look(again=True)
    files.put("second", without_key=True)
    assert not followed.look(again=True)
    assert not followed.look(again=True)
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2


def test_certificate_that_ends_soon_is_told_of_once_and_once_when_it_has_ended(
    files: Files, caplog, monkeypatch
) -> None:
    files.put("brief", days=(-1, 3))
    followed = files.follow()
    assert "the port: the certificate of CN=brief expires on 20" in caplog.text
    caplog.clear()
    later = utc_now() + timedelta(days=4)
    followed._mind_end()
    assert caplog.text == ""
    monkeypatch.setattr(following, "utc_now", lambda: later)
    followed._mind_end()
    followed._mind_end()
    (record,) = caplog.records
    assert "expired on 20" in record.message
    files.put("long", days=(-1, 30))
    caplog.clear()
    files.follow()
    assert caplog.text == ""


def test_looks_at_each_new_connection_or_by_time(files: Files) -> None:
    each = files.follow(at_each=True)
    files.put("second")
    each.context()
    assert served(each) == "CN=second"

    async def by_time() -> None:
        timed = files.follow()
        changed = asyncio.Event()
        timed.on_change = changed.set
        timed.follow(0.001)
        files.put("third")
        await asyncio.wait_for(changed.wait(), 10)
        assert served(timed) == "CN=third"
        timed.close()
        never = files.follow()
        never.follow(0)
        never.close()

    asyncio.run(by_time())
