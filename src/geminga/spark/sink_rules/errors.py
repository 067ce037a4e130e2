"""What the sink refuses to go on with: each text says what happened, what it means for the rows, and what to do."""

from __future__ import annotations

from geminga.model.errors import GemingaError


class SinkError(GemingaError):
    """A batch that can not be written, or is not known to be written."""


class ReplayDiffersError(SinkError):
    """A batch is written again with other rows than before: going on would lose rows or write some twice."""


class SupersededError(SinkError):
    """A newer batch of the same sink was written already: this is an old driver, or an old checkpoint."""


class DeduplicationOffError(SinkError):
    """The broker does not deduplicate a topic, so that a replay would be written twice."""


class NoTransactionsError(SinkError):
    """The cluster has no transactions, which exactly-once is made of."""


class ShutOutError(SinkError):
    """Another driver commits for the same sink."""


class SecondWriteError(SinkError):
    """Two writes have the same name and batch: the second one would be taken for a repetition of the first."""


class LogLostError(SinkError):
    """The log of decisions does not know batches that it should."""


class DecisionLostError(SinkError):
    """A batch was decided, and its transactions timed out before they were committed."""
