"""Which event loop a process runs on."""

from __future__ import annotations

import asyncio
import importlib.util
import sys

import pytest

from geminga.app.lifecycle.event_loop import loop_factory
from geminga.model.errors import ConfigurationError


def test_asyncio_is_taken_when_asked_for() -> None:
    assert loop_factory("asyncio") is asyncio.new_event_loop


@pytest.mark.skipif(importlib.util.find_spec("uvloop") is None, reason="uvloop is not installed")
def test_uvloop_is_taken_where_it_is_installed() -> None:
    loop = loop_factory("uvloop")()
    assert type(loop).__module__.startswith("uvloop")
    loop.close()


def test_uvloop_that_is_missing_is_an_error_only_if_it_was_demanded(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    with pytest.raises(ConfigurationError, match="gemingaEventLoop=uvloop"):
        loop_factory("uvloop")
