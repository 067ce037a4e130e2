"""The named crash points of the sink (``runtime.crash_point``): a worker may die at each, and a replay mends it."""

from __future__ import annotations

from typing import Final

PLANS_OPENED: Final = "spark.sink.plans_opened"
ROWS_READ: Final = "spark.sink.rows_read"
FIRST_SENT: Final = "spark.sink.first_sent"
PLAN_SENT: Final = "spark.sink.plan_sent"
PLAN_RECORDED: Final = "spark.sink.plan_recorded"
OUTPUT_OPENED: Final = "spark.sink.output_opened"
FIRST_ENTRY_STORED: Final = "spark.sink.first_entry_stored"
ENTRY_SENT: Final = "spark.sink.entry_sent"
ROWS_STORED: Final = "spark.sink.rows_stored"
NAMES_LEFT: Final = "spark.sink.names_left"

#: All of the above, in the order of a task's life; effectively once.
ALL: Final[tuple[str, ...]] = tuple(
    value for name, value in list(globals().items()) if name.isupper() and isinstance(value, str)
)

# Exactly once: of a task, and of a commit.
TXN_BEGUN: Final = "spark.sink.txn_begun"
TXN_REGISTERED: Final = "spark.sink.txn_registered"
TXN_WRITTEN: Final = "spark.sink.txn_written"
TXN_DETACHED: Final = "spark.sink.txn_detached"
CLAIMED: Final = "spark.sink.claimed"
DECIDED: Final = "spark.sink.decided"
TXN_ENDED: Final = "spark.sink.txn_ended"
COMMIT_STORED: Final = "spark.sink.commit_stored"
#: What must stay of the log of decisions is stored again, and nothing is let go yet.
KEPT_STORED: Final = "spark.sink.kept_stored"

COMMIT: Final = (CLAIMED, DECIDED, TXN_ENDED, COMMIT_STORED)
