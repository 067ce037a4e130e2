"""What several simulations need around them."""

from __future__ import annotations

import logging

import pytest


@pytest.fixture
def no_log(caplog: pytest.LogCaptureFixture) -> None:
    """What is logged holds errors, and these whole simulated worlds: gigabytes over a thousand seeds."""
    caplog.set_level(logging.CRITICAL, logger="geminga")
