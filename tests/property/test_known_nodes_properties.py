"""A store whose reads and commits take their time on two threads: whoever reads sees what was answered, and time never
goes back."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from geminga.metadata.core.known_nodes import KnownNodes
from geminga.metadata.ports import ChangeKind, Node, Notification, Stat

PATHS = ("/a", "/b", "/c")


def node(version: int) -> Node | None:
    """Each third version is that there is none."""
    return None if version % 3 == 2 else Node(b"%d" % version, Stat(version, 0, 0, False, False))


@dataclass
class World:
    """The file, what is under way to it and back, and what was said. Versions of a path count up for ever."""

    known: KnownNodes = field(default_factory=lambda: KnownNodes(limit=2))
    file: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PATHS, 0))
    answered: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PATHS, 0))
    seen: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PATHS, 0))
    asked: deque[tuple[str, int, int]] = field(default_factory=deque)
    read: deque[tuple[str, int, int, int]] = field(default_factory=deque)
    committed: deque[tuple[str, int]] = field(default_factory=deque)

    def ask(self, path: str) -> None:
        """A read begins: it is answered at once where the node is known."""
        known = self.known.find(path)
        if known is None:
            self.asked.append((path, self.known.changes, self.answered[path]))
            return
        versions = range(self.answered[path], self.file[path] + 1)
        fitting = [version for version in versions if version >= self.seen[path] and node(version) == known.node]
        assert fitting, f"{path}: {known.node} is older than what was answered or seen"
        self.seen[path] = fitting[0]

    def look(self) -> None:
        """The reading thread comes to the next read."""
        if self.asked:
            path, changes, least = self.asked.popleft()
            self.read.append((path, changes, least, self.file[path]))

    def reply(self) -> None:
        """A read comes back."""
        if self.read:
            path, changes, least, version = self.read.popleft()
            assert version >= max(least, self.seen[path])
            self.known.keep(path, node(version), changes)
            self.seen[path] = version

    def commit(self, path: str) -> None:
        """The writing thread has written, and nobody knows."""
        self.file[path] += 1
        self.committed.append((path, self.file[path]))

    def tell(self, *, is_known: bool) -> None:
        """A commit comes back, or fails in a way that may have written it."""
        if self.committed:
            path, version = self.committed.popleft()
            if is_known:
                self.known.forget([Notification(ChangeKind.MODIFIED, path)])
            else:
                self.known.forget_all()
            self.answered[path] = version


STEPS = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from(PATHS)),
    st.tuples(st.just("commit"), st.sampled_from(PATHS)),
    st.tuples(st.sampled_from(["look", "reply", "tell", "fail"]), st.none()),
)


@given(st.lists(STEPS, max_size=60))
def test_who_reads_sees_what_was_answered_and_time_never_goes_back(steps):
    world = World()
    for step, path in steps:
        if step in ("ask", "commit"):
            getattr(world, step)(path)
        elif step in ("look", "reply"):
            getattr(world, step)()
        else:
            world.tell(is_known=step == "tell")
