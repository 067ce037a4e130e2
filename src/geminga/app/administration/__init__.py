"""``geminga admin``: the commands of ``pulsar-admin``, from rows, over the requests of :mod:`geminga.admin`.

What a command does not use is not loaded: neither the client nor Typer. ``geminga context`` and
``completion`` are here.
"""
