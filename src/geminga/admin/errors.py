"""What goes wrong: by the status that a broker answers with."""

from __future__ import annotations

from typing import Final


class AdminError(Exception):
    """A broker refused, or did not answer.

    ``status``: of HTTP; 0: there was no answer. ``reason``: the broker's own words.
    """

    def __init__(self, what: str, status: int, reason: str) -> None:
        self._what = what
        self.status: Final = status
        self.reason: Final = reason
        super().__init__(f"{what}: {status} {reason}" if status else f"{what}: {reason}")

    def __reduce__(self) -> tuple[type[AdminError], tuple[str, int, str]]:
        # Or no other process could read it.
        return type(self), (self._what, self.status, self.reason)


class UnreachableError(AdminError):
    """No answer: nobody listens there, or not in time. Whether a change was made is not known."""


class UnauthorizedError(AdminError):
    """401: it must be said who asks."""


class ForbiddenError(AdminError):
    """403: who asks may not do this."""


class NotFoundError(AdminError):
    """404: what the call names is not there."""


class ConflictError(AdminError):
    """409: it is there already, or in use."""


class PreconditionFailedError(AdminError):
    """412: a value is not allowed, or what it needs is not so."""


class NotBuiltError(AdminError):
    """501: the broker has no such feature."""


class NotAvailableError(AdminError):
    """503, 429: not now, try again."""


_BY_STATUS: Final = {
    401: UnauthorizedError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    412: PreconditionFailedError,
    429: NotAvailableError,
    501: NotBuiltError,
    503: NotAvailableError,
}


def error_of(what: str, status: int, reason: str) -> AdminError:
    """That of an answer."""
    return _BY_STATUS.get(status, AdminError)(what, status, reason)
