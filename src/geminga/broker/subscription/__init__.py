"""Subscriptions and consumers: who gets which message, what is acknowledged, what comes again.

:mod:`.subscribe` makes them, :mod:`.handlers` takes the commands, :mod:`.dispatch_single_active` and
:mod:`.dispatch_shared` send messages, :mod:`.acknowledgment` and :mod:`.seek` move cursors, :mod:`.stats` reports.
The decisions are in ``broker.core``. Modules are imported by name: this package's configuration is part of the
broker's, which must not load the rest.
"""
