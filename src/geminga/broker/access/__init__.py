"""Who asks, for what, and whether they may: one question at every door of a broker, and one place that answers it.

A door is a command of the binary protocol or a route of the admin REST. Its row names an action and what it is about;
the :class:`~geminga.broker.access.ports.Authorizer` answers before the handler runs, so that a refusal has changed
nothing. Today everybody is anonymous and may do everything (:mod:`geminga.broker.access.anonymous`).
"""
