"""What went wrong, as a sentence for people and a status of HTTP that is never 500."""

from __future__ import annotations

from typing import Final

from geminga.admin.errors import (
    AdminError,
    ConflictError,
    ForbiddenError,
    NotAvailableError,
    NotBuiltError,
    NotFoundError,
    PreconditionFailedError,
    UnauthorizedError,
    UnreachableError,
)
from geminga.model.errors import GemingaError

#: What is told of a kind of error, before the broker's own words.
_SENTENCES: Final[tuple[tuple[type[AdminError], int, str], ...]] = (
    (UnreachableError, 504, "The broker did not answer"),
    (ForbiddenError, 403, "You may not do this"),
    (UnauthorizedError, 403, "You may not do this"),
    (NotFoundError, 404, "It is not there"),
    (ConflictError, 409, "It can not be done as things are"),
    (PreconditionFailedError, 412, "It can not be done as things are"),
    (NotBuiltError, 501, "This broker has no such feature"),
    (NotAvailableError, 503, "The broker can not tell now"),
)
#: Characters of a reason.
_REASON_LENGTH_MAX: Final = 1000


def explained(error: Exception) -> tuple[int, str]:
    """Status and sentence."""
    for kind, status, words in _SENTENCES:
        if isinstance(error, kind):
            return status, _sentence(words, error.reason)
    if isinstance(error, AdminError):
        status = error.status if 400 <= error.status < 500 else 502
        return status, _sentence("The broker refused" if status < 500 else "The broker failed", error.reason)
    if isinstance(error, GemingaError):
        status = error.http_status
        return (
            (status, _sentence("This can not be", error.told))
            if status < 500
            else (503, _sentence("It did not work", error.told))
        )
    if isinstance(error, ValueError):
        return 400, _sentence("This can not be", str(error))
    return 503, _sentence("It did not work", str(error) or type(error).__name__)


def _sentence(words: str, reason: str) -> str:
    told = " ".join(reason.split())[:_REASON_LENGTH_MAX].rstrip(".")
    return f"{words}: {told}." if told else f"{words}."
