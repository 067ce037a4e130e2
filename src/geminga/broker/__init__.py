"""Serves the client protocol and the administration, and keeps nothing: what it acknowledged is on bookies.

:mod:`.connection` is one client's connection, :mod:`.handlers` what its commands do, :mod:`.topic` a loaded topic,
:mod:`.subscription` its consumers, :mod:`.registry` which topics there are, :mod:`.ownership` where they are served,
:mod:`.policies` what is asked of them, :mod:`.upkeep` what is done over all of them from time to time, :mod:`.rest` the
administration. Decisions are in :mod:`.core`; :mod:`.service` puts the parts together.
"""
