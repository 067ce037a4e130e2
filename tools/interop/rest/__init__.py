"""One table of REST calls, sent to Geminga and to Apache Pulsar: where the answers differ, the difference is meant.

**To add calls**, add a :class:`~tools.interop.rest.calls.Story` to ``STORIES`` of a module in ``tables`` (a new module
is named in ``tables/__init__.py``)::

    Story(
        "peek",                                  # a name of its own; the story gets the namespace public/peek, empty
        put("persistent/{ns}/t"),                # every call is compared, those that set something up too
        Publish("persistent://{ns}/t", 3),       # m0, m1, m2; not compared
        get("persistent/{ns}/t/stats"),          # keys and types of the body are compared
        get("namespaces/{ns}/messageTTL", exact=True),  # values too
        post("persistent/{ns}/t/subscription/s/skip/x", "3"),  # a body goes as JSON; raw=b"..." as it is
    )

Between the calls a client may do something in transactions (``transacting.py``): ``Begin("a")`` makes ``{a}`` of later
paths its numbers, and its id in answers ``(a)``; ``{acked}`` is the message that the last ``Acknowledge`` received.
Tables with settings of their own are told to brokers of their own (``tables.SETTINGS``).

Paths are relative to ``/admin/v2/`` unless they begin with a slash, and are sent as they are written. ``{ns}`` stands
for the story's namespace, in bodies too; ``{ledger}`` for the ledger that the last :class:`Publish` wrote to. A call is
known as ``story: METHOD path body``, with ``#2`` where it comes again.

**Then** ``python -m tools.interop rest --record`` (``make interop INTEROP_ARGS="rest --record"``) sends the table to
both, says what differs, and writes what Apache's broker answered to ``answers/MODULE.jsonl``: with that
``tests/integration/rest/test_rest_calls.py`` compares in ``make test``, where no Java is. ``-k text`` sends the stories
whose name has the text only. ``--geminga`` compares with what is recorded and starts no Java.

**A difference** is a line such as ``answer: 500 | 412 Invalid ...`` (Apache's before the bar), ``value ttl: 3 | 4``,
``only Apache: a.b number`` or ``only Geminga: a.b number``. It is an error unless a row of ``meant.MEANT`` covers it;
such a row names the row of ``docs/compatibility.md`` that tells users, and is an error itself as soon as it covers
nothing.
"""
