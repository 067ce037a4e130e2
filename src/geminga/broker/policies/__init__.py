"""What namespaces and topics may ask of the broker beside the protocol: retention, expiry, backlog quotas.

:mod:`.rules` and :mod:`.core` decide, parts of the topic and :mod:`.upkeep` carry it out, :mod:`.topic_policies` keeps
what single topics have of their own.
"""
