"""The metadata tree against a plain dict of versions, for any sequence of operations; SQLite against the tree."""

from __future__ import annotations

import sqlite3

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from geminga.metadata.core.tree import MetadataTree, check_count
from geminga.metadata.ports import SEQUENCES_MAX
from geminga.metadata.sqlite_tree import SqliteTree
from geminga.model.errors import MetadataError

NAMES = st.sampled_from(["a", "b", "c-"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(lambda names: "/" + "/".join(names))
EXPECTED = st.one_of(st.none(), st.integers(-1, 3))
VALUES = st.binary(max_size=3)


class TreeMachine(RuleBasedStateMachine):
    """``expected`` maps path -> [value, version, session]; counters are checked by never meeting a path twice."""

    sessions = Bundle("sessions")

    @initialize(target=sessions)
    def start(self):
        self.tree = MetadataTree()
        self.file = SqliteTree(":memory:")
        self.file.create_schema(0)
        self.file.begin()
        self.file.start_session()
        self.file.commit()
        self.tree_session = self.tree.open_session()
        self.expected: dict[str, list] = {"/": [b"", 0, None]}
        self.sequential: set[str] = set()
        return multiple()

    def both(self, operation):
        """Run on both; the same result or the same error class."""
        outcomes = []
        for tree, session in ((self.tree, self.tree_session), (self.file, self.file.session)):
            if tree is self.file:
                self.file.begin()
            try:
                outcomes.append(operation(tree, session))
            except MetadataError as error:
                outcomes.append(type(error))
            if tree is self.file:
                self.file.commit()
        assert outcomes[0] == outcomes[1]
        return outcomes[0]

    @rule(path=PATHS, value=VALUES, expected=EXPECTED, ephemeral=st.booleans())
    def put(self, path, value, expected, ephemeral):
        outcome = self.both(
            lambda tree, session: tree.put(
                path,
                value,
                expected_version=expected,
                session=session,
                now_ms=5,
                ephemeral=ephemeral,
                sequential=False,
            )
        )
        known = self.expected.get(path)
        parents = [path[:i] for i in range(1, len(path)) if path[i] == "/"]
        allowed = expected is None or expected == (-1 if known is None else known[1])
        allowed = allowed and not any(self.expected.get(parent, [0, 0, None])[2] for parent in parents)
        assert allowed == (not isinstance(outcome, type))
        if not allowed:
            return
        for parent in parents:
            self.expected.setdefault(parent, [b"", 0, None])
        if known is None:
            self.expected[path] = [value, 0, "ours" if ephemeral else None]
        else:
            known[0], known[1] = value, known[1] + 1
        assert outcome.result.stat.version == self.expected[path][1]

    @rule(path=PATHS, value=VALUES)
    def put_sequential(self, path, value):
        outcome = self.both(
            lambda tree, session: tree.put(
                path, value, expected_version=None, session=session, now_ms=5, ephemeral=False, sequential=True
            )
        )
        if isinstance(outcome, type):
            return
        made = outcome.result.path
        assert made not in self.expected
        assert made.startswith(path)
        for parent in (made[:i] for i in range(1, len(made)) if made[i] == "/"):
            self.expected.setdefault(parent, [b"", 0, None])
        self.expected[made] = [value, 0, None]

    @rule(path=PATHS, count=st.integers(0, SEQUENCES_MAX + 1))
    def take_sequences(self, path, count):
        before = self.tree.next_sequence(path)
        is_number = 1 <= count <= SEQUENCES_MAX

        def take(tree, session):
            # What a store asks is checked before it comes to the file.
            check_count(path, count)
            taken, notifications = tree.take_sequences(path, count, session=session, now_ms=5)
            return list(taken), notifications

        outcome = self.both(take)
        above = [path[:i] for i in range(1, len(path) + 1) if i == len(path) or path[i] == "/"]
        allowed = is_number and not any(self.expected.get(each, [0, 0, None])[2] for each in above)
        assert allowed == (not isinstance(outcome, type))
        if allowed:
            assert outcome[0] == list(range(before, before + count))
            assert self.tree.next_sequence(path) == self.file.next_sequence(path) == before + count
            for each in above:
                self.expected.setdefault(each, [b"", 0, None])

    @rule(path=PATHS, expected=st.one_of(st.none(), st.integers(0, 3)))
    def delete(self, path, expected):
        outcome = self.both(lambda tree, session: tree.delete(path, expected_version=expected, session=session))
        known = self.expected.get(path)
        has_children = any(other.startswith(path + "/") for other in self.expected)
        allowed = known is not None and expected in (None, known[1]) and not has_children
        assert allowed == (not isinstance(outcome, type))
        if allowed:
            del self.expected[path]

    @rule()
    def restart(self):
        self.tree.end_session(self.tree_session, 6)
        self.tree_session = self.tree.open_session()
        self.file.begin()
        self.file.start_session()
        self.file.commit()
        self.expected = {path: node for path, node in self.expected.items() if node[2] is None}

    @invariant()
    def same_nodes(self):
        if not hasattr(self, "tree"):
            return
        self.tree.check_invariants()
        for path, (value, version, owner) in self.expected.items():
            for tree, session in ((self.tree, self.tree_session), (self.file, self.file.session)):
                node = tree.get(path, session) if tree is self.file else tree.get(path, session=session)
                assert node is not None
                assert (node.value, node.stat.version, node.stat.is_ephemeral) == (value, version, owner is not None)
                depth = path.count("/") + 1 if path != "/" else 1
                below = {p for p in self.expected if p != "/" and p.count("/") == depth and p.startswith(path)}
                names = sorted(p.rsplit("/", 1)[1] for p in below if p.rpartition("/")[0] in (path, path.rstrip("/")))
                assert tree.children(path) == names

    def teardown(self):
        if hasattr(self, "file"):
            self.file.close()


TestTree = TreeMachine.TestCase
TestTree.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


def test_sqlite_is_new_enough_for_without_rowid_and_partial_indexes():
    assert sqlite3.sqlite_version_info >= (3, 8, 2)
