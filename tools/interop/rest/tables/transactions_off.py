"""The interface of transactions of a broker that has none."""

from __future__ import annotations

from typing import Final

from tools.interop.rest.calls import Story, get, post, put

_BASE: Final = "/admin/v3/transactions"

STORIES: Final = [
    Story(
        "no transactions",
        put("persistent/{ns}/t"),
        get(f"{_BASE}/coordinators"),
        get(f"{_BASE}/coordinatorStats"),
        get(f"{_BASE}/coordinatorStats?coordinatorId=0"),
        get(f"{_BASE}/coordinatorInternalStats/0"),
        get(f"{_BASE}/slowTransactions/0"),
        get(f"{_BASE}/slowTransactions/x"),
        get(f"{_BASE}/transactionMetadata/0/0"),
        get(f"{_BASE}/transactionMetadata/x/0"),
        post(f"{_BASE}/abortTransaction/0/0"),
        post(f"{_BASE}/transactionCoordinator/replicas", 17),
        get(_BASE + "/transactionBufferStats/{ns}/t"),
        get(_BASE + "/transactionBufferStats/{ns}/nothing"),
        get(_BASE + "/transactionBufferInternalStats/{ns}/t"),
        get(_BASE + "/transactionBufferInternalStats/{ns}/nothing"),
        get(_BASE + "/transactionInBufferStats/{ns}/t/0/0"),
        get(_BASE + "/pendingAckStats/{ns}/t/sub"),
        get(_BASE + "/pendingAckInternalStats/{ns}/t/sub"),
        get(_BASE + "/transactionInPendingAckStats/{ns}/t/sub/0/0"),
        get(_BASE + "/positionStatsInPendingAck/{ns}/t/sub/0/0"),
    ),
]
