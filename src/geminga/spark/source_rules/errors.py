"""What can go wrong while Spark reads topics."""

from __future__ import annotations

from geminga.model.errors import GemingaError


class SourceError(GemingaError):
    """Root of the source's errors; those of the client come as they are."""


class DataLossError(SourceError):
    """Messages between two positions of a query are not in the topic any more, or may not be."""


class ReadTimeoutError(SourceError):
    """The broker has messages below the end of a range and did not send any for ``pollTimeoutMs``."""


class TopicError(SourceError):
    """A topic that should be read is not there, or none is."""


class SubscriptionBusyError(SourceError):
    """The durable subscription of a stream is held by somebody else, such as another query."""


class SchemaError(SourceError):
    """A topic's schema has no columns in Spark, topics differ, or a message does not fit its schema."""


class LakeError(SourceError):
    """The lake can not be read, and what should be in it can not be had from the broker."""
