"""``geminga cluster``: ZooKeeper, bookies and brokers as processes of this machine, in one directory.

The processes outlive the command. What they are and where is in ``cluster.json`` (``docs/formats/local-cluster.md``),
written before any of them runs; ``up`` starts what is missing and ends what it started if not all of it gets ready.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from geminga.app.local import local_processes
from geminga.app.local.core.local_cluster import (
    BOOKIES_MAX,
    ClusterState,
    LocalMember,
    MemberKind,
    MemberState,
    Plan,
    change_plan,
    decode_state,
    encode_state,
    member_names,
)
from geminga.app.local.local_start import LocalStart, is_ready
from geminga.model.errors import ConfigurationError, DataDirectoryError, UnavailableError
from geminga.runtime.local_file import make_private_directories, naming, private
from geminga.version import __version__

STATE_FILE: Final = "cluster.json"
LOCK_FILE: Final = "cluster.lock"
#: Directories beside those of bookies.
LOGS, RUN = "logs", "run"
#: Each kind of process of an ``up`` that failed has as long to stop in good order, seconds.
UNDO_S: Final = 10.0
#: What may lie in a directory that no cluster was made in.
_ALLOWED_IN_NEW: Final = frozenset(("lost+found", LOCK_FILE, f"{STATE_FILE}.tmp"))


class MemberStatus(NamedTuple):
    """What has become of one."""

    name: str
    kind: MemberKind
    state: MemberState
    #: None: it was never started.
    member: LocalMember | None


def await_all(look: Callable[[], list[MemberStatus]], deadline: float, logs: Path) -> list[MemberStatus]:
    """What ``look`` finds once all of them are ready at the same time; who is busy may be asked again.

    Raises UnavailableError for one that is gone, or not ready at ``deadline`` (seconds of the monotonic clock).
    """
    while True:
        found = look()
        left = [one for one in found if one.state is not MemberState.READY]
        if not left:
            return found
        gone = [one.name for one in left if one.state is not MemberState.NOT_READY]
        if gone:
            raise UnavailableError(f"{', '.join(gone)} ended right after it was ready; what it said is in {logs}")
        if time.monotonic() > deadline:
            names = ", ".join(one.name for one in left)
            raise UnavailableError(f"{names} did not stay ready in time (--timeout); what it said is in {logs}")
        time.sleep(local_processes.LOOK_S)


class LocalCluster:
    """The cluster in ``directory``; ``say`` gets a line for each step."""

    def __init__(self, directory: Path, say: Callable[[str], None]) -> None:
        self.directory = directory
        self._say = say
        #: What the last :meth:`up` started.
        self._started: list[LocalMember] = []

    def load(self) -> ClusterState | None:
        """What was started; None if there is no cluster. Raises DataDirectoryError for a damaged or newer one."""
        path = self.directory / STATE_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise DataDirectoryError(f"{path} is damaged: it is no text") from error
        return decode_state(text, str(path))

    def log_of(self, name: str) -> Path:
        """Where a member says what it does."""
        return self.directory / LOGS / f"{name}.log"

    # ---- up

    def up(self, asked: Mapping[str, object], *, within_s: float) -> list[MemberStatus]:
        """Start what is missing of what was ``asked`` for now and before; return once all of it is ready.

        Raises GemingaError, OSError, KeyboardInterrupt: then everything that was started by this call has ended.
        """
        # Whatever is wrong already is told before anything is made.
        self.check(asked)
        deadline = time.monotonic() + within_s
        start = LocalStart(self.directory, deadline, self._say, self._save)
        make_private_directories(self.directory)
        with locked(self.directory, LOCK_FILE):
            state = self._changed(asked)
            start.check(state)
            for name in (LOGS, RUN, *member_names(MemberKind.ZOOKEEPER, state.plan.zookeepers)):
                make_private_directories(self.directory / name)
            self._save(state)
            state = self._without_surplus(state)
            try:
                state = start.run(state)
                found = await_all(lambda: self.status(state), deadline, self.directory / LOGS)
            except BaseException:
                self._end(start.started, within_s=UNDO_S)
                raise
        self._started = start.started
        return found

    def check(self, asked: Mapping[str, object]) -> None:
        """Raise GemingaError for what :meth:`up` would refuse before it starts anything."""
        LocalStart(self.directory, 0.0, self._say, self._save).check(self._changed(asked))

    def undo(self, *, within_s: float) -> None:
        """End what the last :meth:`up` started."""
        self._end(self._started, within_s=within_s)

    def _changed(self, asked: Mapping[str, object]) -> ClusterState:
        state = self.load()
        if state is None:
            self._refuse_foreign()
            return ClusterState(change_plan(Plan(), asked, is_new=True), (), f"geminga {__version__}")
        return ClusterState(change_plan(state.plan, asked, is_new=False), state.members, state.created_by)

    def _refuse_foreign(self) -> None:
        try:
            names = sorted(set(os.listdir(self.directory)) - _ALLOWED_IN_NEW)
        except FileNotFoundError:
            return
        if names:
            raise DataDirectoryError(
                f"{self.directory} has no {STATE_FILE} and is not empty ({', '.join(names[:3])}): it belongs to "
                "something else; expected a new or an empty directory, or that of a cluster"
            )

    def _without_surplus(self, state: ClusterState) -> ClusterState:
        """End brokers beyond what was asked for: they keep nothing. Their names go, too."""
        wanted = member_names(MemberKind.BROKER, state.plan.brokers)
        surplus = [member for member in state.members if member.kind is MemberKind.BROKER and member.name not in wanted]
        if not surplus:
            return state
        self._end(surplus, within_s=UNDO_S)
        left = ClusterState(state.plan, tuple(m for m in state.members if m not in surplus), state.created_by)
        self._save(left)
        return left

    # ---- status

    def status(self, state: ClusterState) -> list[MemberStatus]:
        """Each member that was asked for, and how it is now; who does not answer within a moment is not ready."""
        wanted = [
            (kind, name)
            for kind, count in (
                (MemberKind.ZOOKEEPER, state.plan.zookeepers),
                (MemberKind.BOOKIE, state.plan.bookies),
                (MemberKind.BROKER, state.plan.brokers),
            )
            for name in member_names(kind, count)
        ]
        with ThreadPoolExecutor(len(wanted)) as threads:
            return list(threads.map(lambda item: self._status_of(state, *item), wanted))

    def _status_of(self, state: ClusterState, kind: MemberKind, name: str) -> MemberStatus:
        member = state.member(name)
        if member is None:
            return MemberStatus(name, kind, MemberState.GONE, None)
        now = local_processes.started_at(member.pid)
        answered = now == member.started and is_ready(member)
        return MemberStatus(name, kind, member.state(now, is_ready=answered), member)

    # ---- down

    def down(self, *, within_s: float, delete: bool) -> list[str]:
        """Stop brokers, then bookies, then ZooKeeper; names of those that had to be killed after ``within_s`` each.

        ``delete``: remove what the cluster stored, as well. Raises GemingaError, OSError.
        """
        if self.load() is None:
            raise self.missing()
        with locked(self.directory, LOCK_FILE):
            state = self.load()
            if state is None:
                raise self.missing()
            killed = self._end(state.members, within_s=within_s)
            left = [member.name for member in state.members if local_processes.is_there(member)]
            if left:
                raise UnavailableError(f"{', '.join(left)} could not be ended: nothing was removed")
            if delete:
                self._delete(state)
        return killed

    def missing(self) -> ConfigurationError:
        """What is said where there is none."""
        return ConfigurationError(f"there is no cluster in {self.directory}: geminga cluster up --dir makes one")

    def _end(self, members: Collection[LocalMember], *, within_s: float) -> list[str]:
        killed = []
        running = [member for member in members if local_processes.is_there(member)]
        for kind in reversed(MemberKind):
            stage = [member for member in running if member.kind is kind]
            if not stage:
                continue
            self._say(f"stopping {', '.join(member.name for member in stage)}")
            late = local_processes.end(stage, within_s=within_s)
            for member in late:
                self._say(f"{member.name} did not stop within {within_s:g} s, and was killed")
            killed += [member.name for member in late]
        return killed

    def _delete(self, state: ClusterState) -> None:
        servers = member_names(MemberKind.ZOOKEEPER, state.plan.zookeepers)
        names = [*servers, *member_names(MemberKind.BOOKIE, max(state.plan.bookies, BOOKIES_MAX)), LOGS, RUN]
        found = [name for name in names if os.path.lexists(self.directory / name)]
        self._say(f"removing all data of cluster {state.plan.cluster}: {', '.join(found)} in {self.directory}")
        for name in found:
            shutil.rmtree(self.directory / name)
        # Last: until then the same command goes on.
        for name in (STATE_FILE, f"{STATE_FILE}.tmp", LOCK_FILE):
            (self.directory / name).unlink(missing_ok=True)
        try:
            self.directory.rmdir()
        except OSError:
            self._say(f"{self.directory} stays: there is something in it that is not the cluster's")

    # ---- its files

    def _save(self, state: ClusterState) -> None:
        write_state(self.directory / STATE_FILE, encode_state(state))


def write_state(path: Path, text: str) -> None:
    """The text is all there, or what was there before is. Raises OSError."""
    made = path.with_suffix(".json.tmp")
    with naming(str(made)), open(made, "w", encoding="utf-8", opener=private) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)


@contextmanager
def locked(directory: Path, name: str) -> Iterator[None]:
    """While nobody else is at work in ``directory``. Raises UnavailableError."""
    with open(directory / name, "ab", opener=private) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnavailableError(
                f"another geminga cluster command is at work in {directory}: wait until it has ended"
            ) from None
        yield
