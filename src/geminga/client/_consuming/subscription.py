"""``Subscription``: what the consumers of single topics share that one :class:`Consumer` has."""

from __future__ import annotations

from dataclasses import dataclass

from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._consuming.entries import Decryptor
from geminga.client._messages.consumer_interceptors import Interceptors
from geminga.client._messages.consumer_options import ConsumerOptions
from geminga.client.rules.stats import ConsumerCounters


@dataclass(frozen=True, slots=True)
class Subscription:
    """See the module."""

    name: str
    consumer_name: str
    options: ConsumerOptions
    counters: ConsumerCounters
    #: None: the application has none; asked for with each message.
    interceptors: Interceptors | None
    #: None: nothing can be decrypted.
    decryptor: Decryptor | None
    #: None: nothing is buried or put off.
    dead_letters: DeadLetters | None
