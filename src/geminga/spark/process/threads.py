"""Spark's work from threads of the user's own: pools in ``foreachBatch``, ``asyncio.to_thread``, web servers.

What Spark knows of "here" it keeps for each thread of the JVM, and a thread of Python's has one of its own there: which
session is active, without which ``format("pulsar")`` is not found, and of which query and batch its jobs are, without
which a write from ``foreachBatch`` can not be known again when the batch is replayed.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

P = ParamSpec("P")
R = TypeVar("R")


def inheriting(session: SparkSession, function: Callable[P, R]) -> Callable[P, R]:
    """``function`` for another thread, where it finds ``session`` active and the properties of this thread.

    Call this where the properties are: in ``foreachBatch`` in the batch's own thread, with ``batch.sparkSession``. What
    the other thread had it has again afterwards, so that a pool can outlive the batch. Over Spark Connect the thread
    says nothing to Spark, and ``function`` is given back: there ``txnAppId`` and ``txnVersion`` say whose batch it is.
    """
    from pyspark.sql import SparkSession

    if not isinstance(session, SparkSession):
        return function
    # Spark has no public way to any of this: pyspark.inheritable_thread_target leaves the session out, and the
    # properties in the thread, where a later write would be taken for one of a batch that is over.
    jvm: Any = session._jvm
    context: Any = session.sparkContext._jsc.sc()
    given: Any = context.getLocalProperties().clone()
    sessions = jvm.org.apache.spark.sql.classic.SparkSession

    @wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> R:
        properties, active = context.getLocalProperties(), sessions.getActiveSession()
        context.setLocalProperties(given.clone())
        sessions.setActiveSession(session._jsparkSession)
        try:
            return function(*args, **kwargs)
        finally:
            context.setLocalProperties(properties)
            if active.isDefined():
                sessions.setActiveSession(active.get())
            else:
                sessions.clearActiveSession()

    return wrapped
