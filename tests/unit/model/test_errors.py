"""The error tree's promises (the mapping to wire codes is held by the tidy tests)."""

from __future__ import annotations

import pytest

from geminga.model.errors import (
    InvariantError,
    LocalError,
    NotEnoughBookiesError,
    ServerError,
    StorageError,
    TopicClosingError,
    UnavailableError,
    invariant,
)


def test_invariant_that_holds_does_nothing() -> None:
    invariant(1, "never shown")


def test_invariant_that_fails_tells_its_story() -> None:
    with pytest.raises(InvariantError, match="mark-delete went back"):
        invariant([], "mark-delete went back")
    assert issubclass(InvariantError, LocalError)


def test_unavailable_errors_ask_to_try_again() -> None:
    assert UnavailableError.retriable
    assert TopicClosingError.retriable
    assert TopicClosingError.server_error is ServerError.SERVICE_NOT_READY
    assert NotEnoughBookiesError.retriable
    assert not StorageError.retriable
