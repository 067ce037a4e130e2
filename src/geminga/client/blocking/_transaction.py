"""The blocking ``Transaction``.

Generated from ``client/_api/transaction.py`` by ``tools/generate_blocking.py``: do not edit.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

from geminga.client.blocking._facade import TransactionFacade
from geminga.client.rules.transaction import TransactionState
from geminga.model.txn_id import TxnId


class Transaction(TransactionFacade):
    """Made by :meth:`Client.transaction`; given as ``txn=`` to what is to be done in it.

    ``with`` commits it at the end, and aborts it if an exception (a cancellation, too) comes out of the block.
    """

    __slots__ = ()

    @property
    def id(self) -> TxnId:
        """The coordinator and its number."""
        return self._call(lambda: self._target.id)

    @property
    def state(self) -> TransactionState:
        """Where it stands now."""
        return self._call(lambda: self._target.state)

    def commit(self) -> None:
        """Wait for all that was sent and acknowledged in it, then let it count.

        If any of that failed, it is aborted and the error is raised: a part is never committed. Raises
        InvalidTxnStatusError if it is not open, or the coordinator aborted it (its timeout); TransactionNotFound if
        nobody knows how it ended; Timeout and the like if no coordinator answered within the operation timeout: it
        stays COMMITTING then, and ``commit`` may be called again. Goes on to its end also when the caller is cancelled.
        """
        self._run(lambda: self._target.commit())

    def abort(self) -> None:
        """Wait for all that was sent and acknowledged in it, then undo it: no message of it is ever seen, and what was
        acknowledged comes again. Raises as :meth:`commit` does, but not the errors of what was done in it.
        """
        self._run(lambda: self._target.abort())

    def detach(self) -> TxnId:
        """Wait for all that was sent in it, then leave its end to whoever has its id: see
        :meth:`Client.end_transaction`. Nobody does, and it is aborted when its timeout is over.

        If any of that failed, it is aborted and the error is raised, as :meth:`commit` does. What was acknowledged in
        it would wait for its end at this client: raises NotAllowedError.
        """
        return self._run(lambda: self._target.detach())

    def close(self) -> None:
        """Abort it if it is open still; the client does so when it is closed. Raises what :meth:`abort` raises."""
        self._run(lambda: self._target.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._run(lambda: self._target.__aexit__(kind, error, traceback))
