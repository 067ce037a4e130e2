"""Geminga: an Apache-Pulsar-compatible messaging system in Python.

The map, bottom up (each package may import only those above it in this list; tests/tidy holds it):

=================  ==========================================================================
``model``          vocabulary as values: names, positions, the error tree, named limits
``runtime``        ports to the world: clock, randomness, network, disk, spawn
``wire``           pure codecs: Pulsar frames and commands, BookKeeper entries, metadata values
``sim``            the simulated twin of every port, with crashes, for tests
``client``         the asyncio client for Geminga and Apache Pulsar, and its blocking facade
``spark``          topics as tables and streams of Apache Spark (extra ``spark``)
``metadata``       versioned tree with compare-and-set, watches and sessions; memory, SQLite, ZooKeeper
``bookie``         storage of entries: journal, write cache, entry log, index, garbage collection
``bookkeeper``     ledger client: create, append, read, recover, close, over a quorum of bookies
``managed_ledger`` the endless log of a topic: rollover, trim, entry cache, durable cursors
``broker``         connections, topics, producers, subscriptions, dispatchers, admin REST
``app``            composition roots: ``geminga standalone``, :class:`Standalone`, configuration
=================  ==========================================================================

``geminga.Standalone`` runs a whole broker inside a program or a test.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from geminga.version import __version__

__all__ = ["Standalone", "__version__"]


if TYPE_CHECKING:
    from geminga.app.servers.embedded import Standalone


def __getattr__(name: str) -> object:
    # Lazy, so that `import geminga` costs nothing until a broker is wanted.
    if name == "Standalone":
        try:
            from geminga.app.servers.embedded import Standalone
        except ImportError as error:
            from geminga.model.extras import missing_extra

            missing = missing_extra(error, "geminga.Standalone", "server")
            if missing is None:
                raise
            raise missing from None
        return Standalone
    raise AttributeError(f"module 'geminga' has no attribute {name!r}")
