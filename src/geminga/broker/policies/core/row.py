"""What a policy is, in one row: names, types, levels, REST shape, who follows it. Pure.

Everything that depends on which policies there are is made from the rows: the REST paths and what answers 501
there, the Avro schema of topic policies, what a new namespace holds, the merge of the levels, and the tables of the
documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Final, Generic, NamedTuple, TypeVar

from geminga.broker.access.core.actions import Action, PolicyName
from geminga.broker.core.coercion import Document, Json
from geminga.broker.policies.core.readers import Merge, first_of

T = TypeVar("T")
L = TypeVar("L", "NamespaceLevel", "TopicLevel")

#: Values of the broker's configuration by key.
Settings = Mapping[str, object]
#: What is said where the namespace is missing: some of Pulsar's paths use other words.
NO_NAMESPACE: Final = "Namespace does not exist"
NO_POLICIES: Final = "Namespace policies does not exist"


class Nothing(Enum):
    """What it means to Pulsar that a policy is set to nothing: by an empty body or null."""

    REMOVES = auto()
    CHANGES_NOTHING = auto()
    #: Said by the check, in its own words.
    IS_CHECKED = auto()
    #: Said in the words for a body that is missing.
    IS_REFUSED = auto()


class Rest(NamedTuple):
    """How a level's policy is read, set and removed."""

    #: Last part of its path; empty: it has none of its own, or one that is served by hand.
    path: str
    set_by: str = "POST"
    nothing: Nothing = Nothing.REMOVES
    #: What is answered where nothing is set; None: no body.
    unset: Json = None
    #: Status of that answer without a body.
    unset_status: int = 200
    #: The query parameter that holds the value where Pulsar has it there; empty: the body.
    parameter: str = ""
    #: What setting it sets, whatever the body, where Pulsar's path takes none; None: what the body says.
    fixed: Json = None
    #: In the words of this level; None: the row's.
    check: Callable[[Json], Json] | None = None
    #: What is said where the namespace is missing when the policy is changed.
    missing: str = NO_NAMESPACE
    #: Whether the broker's own value is answered where nothing is set.
    answers_broker: bool = False
    #: A boolean of the query that is set with it where it is said, and the member of the policies that holds it.
    beside: tuple[str, str] | None = None
    #: What is said where this one is true and that one false.
    refused_beside: str = ""
    #: Served by handlers of its own: several paths, or values one by one.
    is_by_hand: bool = False


class NamespaceLevel(NamedTuple):
    """A member of Pulsar's ``Policies``."""

    key: str
    rest: Rest | None = None
    #: What a new namespace holds; None: no such member.
    new: Json = None
    #: What is stored when the policy is removed.
    removed: Json = None
    #: Pulsar keeps a map from clusters to values, of which this cluster's counts.
    is_per_cluster: bool = False
    #: A member that an older version wrote instead, and what its value is in the present one.
    older: tuple[str, Mapping[str, str]] | None = None
    #: Of values by cluster: the member that an older version wrote instead; it counts where this one says nothing.
    older_name: str = ""
    #: What setting it takes where that is more than the tenant's administration.
    needs: Action | None = None

    def reported(self, document: Mapping[str, Json], cluster: str) -> Json:
        """What a reader is given; None: nothing is set."""
        value = document.get(self.key)
        if self.is_per_cluster:
            value = value.get(cluster) if isinstance(value, dict) else None
        if self.removed is not None and type(value) is type(self.removed) and value == self.removed:
            return None
        return value

    def stored(self, document: Mapping[str, Json], cluster: str) -> Json:
        """What this namespace sets; None: nothing."""
        value = self.reported(document, cluster)
        if value is None and self.older is not None:
            old = document.get(self.older[0])
            value = self.older[1].get(old) if isinstance(old, str) else None
        if value is None and self.older_name:
            values = document.get(self.older_name)
            value = values.get(cluster) if isinstance(values, dict) else None
        return value

    def changed(self, document: Mapping[str, Json], cluster: str, value: Json) -> Document:
        """The document with another value; None: nothing is set any more. Everything else in it stays."""
        if self.is_per_cluster:
            present = document.get(self.key)
            values: Document = dict(present) if isinstance(present, dict) else {}
            values.pop(cluster, None)
            if value is not None:
                values[cluster] = value
            return {**document, self.key: values}
        return {**document, self.key: self.removed if value is None else value}


@dataclass(frozen=True, slots=True)
class TopicLevel:
    """Fields of Pulsar's ``TopicPolicies``: one, or several that one policy consists of."""

    #: Field -> its Avro type.
    avro: Mapping[str, object]
    rest: Rest | None = None
    #: Field -> member of the policy's value, where there are several.
    members: Mapping[str, str] = field(default_factory=dict)
    #: The member without which nothing is told as set.
    main: str = ""

    @property
    def key(self) -> str:
        """The only field."""
        return next(iter(self.avro))

    def stored(self, document: Mapping[str, Json]) -> Json:
        """What the topic holds; None: nothing."""
        if not self.members:
            return document.get(self.key)
        found = {member: document.get(name) for name, member in self.members.items()}
        return {key: value for key, value in found.items() if value is not None} or None

    def reported(self, document: Mapping[str, Json]) -> Json:
        """What a reader is given; None: nothing is set."""
        value = self.stored(document)
        if value in ([], {}):
            # What Pulsar's broker holds of a policy that was never set.
            return None
        return None if self.main and isinstance(value, dict) and self.main not in value else value

    def shown(self, value: Json) -> Json:
        """A value with all its members, where it has several."""
        if not self.members or not isinstance(value, dict):
            return value
        return {**{member: value.get(member, 0) for member in self.members.values()}, **value}

    def changed(self, document: Mapping[str, Json], value: Json) -> Document:
        """The document with another value; None: nothing is set any more. Everything else in it stays."""
        if not self.members:
            return {**document, self.key: value}
        given = value if isinstance(value, dict) else {}
        return {**document, **{name: given.get(member) for name, member in self.members.items()}}


@dataclass(frozen=True, eq=False)
class PolicyRow(Generic[T]):
    """One policy. ``T`` is what its effect gets of it."""

    #: As users say it.
    name: str
    #: Of Pulsar's ``PolicyName``: what who may administer it is asked for.
    policy: PolicyName
    #: What one level's value means; None: it sets nothing.
    read: Callable[[Json], T | None]
    #: What holds where no level sets anything, and for the broker's own topics.
    otherwise: T
    #: A value that a client sent -> the one to store; raises BodyError (400), PreconditionFailedError (412).
    check: Callable[[Json], Json]
    #: Configuration keys that hold the broker's level.
    keys: tuple[str, ...] = ()
    #: The broker's level from the values of the keys; None: the value of the only one.
    of_broker: Callable[..., Json] | None = None
    namespace: NamespaceLevel | None = None
    topic: TopicLevel | None = None
    #: How the levels come together; None: the most particular one counts.
    merge: Merge | None = None
    #: Refuses what the broker's own settings forbid, after the check.
    bound: Callable[[Json, Settings], None] | None = None
    #: Modules whose code follows it, below ``src/geminga/broker``.
    followed_by: tuple[str, ...] = ()
    #: One sentence for users.
    text: str = ""

    def broker_level(self, settings: Settings) -> Json:
        """What the broker's configuration says."""
        values = [settings[key] for key in self.keys]
        if self.of_broker is not None:
            return self.of_broker(*values)
        value = values[0] if values else None
        if isinstance(value, tuple):
            return list(value)
        return value if isinstance(value, bool | int | float | str) else None

    def merged(self, levels: list[Json]) -> Json:
        """What holds, of levels with the most particular first."""
        merge = self.merge if self.merge is not None else first_of(self.read)
        return merge(levels)

    def value_of(self, levels: list[Json]) -> T:
        """What holds, as the effect gets it."""
        found = self.merged(levels)
        value = None if found is None else self.read(found)
        return self.otherwise if value is None else value


def served(levels: Iterable[tuple[PolicyRow[Any], L | None]]) -> Iterator[tuple[PolicyRow[Any], L, Rest]]:
    """Those that are served over REST by what their rows say, and how."""
    for row, level in levels:
        if level is not None and level.rest is not None and not level.rest.is_by_hand:
            yield row, level, level.rest
