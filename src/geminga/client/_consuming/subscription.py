"""``Subscription``: what the consumers of single topics share that one :class:`Consumer` has."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from geminga.client._consuming.dead_letter import DeadLetters
from geminga.client._consuming.entries import Decryptor
from geminga.client._messages.consumer_interceptors import Interceptors
from geminga.client._messages.consumer_options import ConsumerOptions, InitialPosition
from geminga.client.consumer_rules.chunk_assembly import ChunkBounds
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
    #: Of messages in pieces.
    chunk_bounds: ChunkBounds = field(default_factory=ChunkBounds)

    def of_added_partition(self) -> Subscription:
        """For a partition that was added since this one looked: all of it is newer, wherever the subscription starts.

        The broker that added it may have found no subscription to copy there. To start at its end would lose what was
        published between its creation and the next look.
        """
        options = replace(self.options, initial_position=InitialPosition.Earliest, start_message_rollback_duration_s=0)
        return replace(self, options=options)
