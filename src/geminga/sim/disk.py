"""The simulated disk as a device: its tree of files, its faults, its planted defects, its step counter.

A ``SimDisk`` outlives the node's crashes; each boot of the node works on it through a ``MountedDisk``
(``disk_mount``), which is the ``Disk`` port. Every operation is a row of steps (``write /a``, ``sync /a``,
``done append /a``); before a mutating step takes effect :attr:`SimDisk.on_step` is called with its label, so
that a test can crash the node at exactly that moment. ``done`` steps come after the last effect and before
the completion is delivered.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from geminga.sim.boot import Boot
from geminga.sim.disk_faults import Fault, Struck
from geminga.sim.disk_media import Directory, Inode, Write, linked, lose_power
from geminga.sim.errors import SimError
from geminga.sim.rng import Stream

if TYPE_CHECKING:
    from geminga.sim.disk_mount import MountedDisk

#: Size of the disk unless ``capacity_bytes`` is set.
CAPACITY_BYTES_DEFAULT = 1 << 40


class SimDisk:
    """See the module's docstring. ``rng`` decides latencies, chances of faults and what a power loss keeps."""

    __slots__ = (
        "_faults",
        "_open_inodes",
        "_rng",
        "capacity_bytes",
        "ignore_dir_sync",
        "ignore_file_sync",
        "latency_factor",
        "locks",
        "on_step",
        "root",
        "steps",
        "trace",
    )

    def __init__(self, rng: Stream) -> None:
        self._rng = rng
        self._faults: list[Fault] = []
        self._open_inodes: dict[Inode, None] = {}
        #: The tree.
        self.root = Directory()
        #: Writes beyond this many bytes fail with ENOSPC; may be changed at any time.
        self.capacity_bytes = CAPACITY_BYTES_DEFAULT
        #: Planted defect: file syncs report success and nothing becomes durable.
        self.ignore_file_sync = False
        #: Planted defect: directory syncs report success and nothing becomes durable.
        self.ignore_dir_sync = False
        #: Scales all latencies; 0: every operation takes no virtual time.
        self.latency_factor = 1.0
        #: Mutating steps so far, over all boots.
        self.steps = 0
        #: Called before each mutating step, with its label; may crash the node.
        self.on_step: Callable[[str], None] | None = None
        #: Called with each step's label, for the world's trace.
        self.trace: Callable[[str], None] | None = None
        #: Locked directories and the mount that holds each.
        self.locks: dict[str, MountedDisk] = {}

    # -- for scenarios

    def inject(
        self,
        op: str,
        path: str = "*",
        *,
        error: int = errno.EIO,
        after: int = 0,
        times: int | None = 1,
        percent: float = 100,
    ) -> Fault:
        """Let operations fail with ``error``: the ``after + 1``-th match and the ``times - 1`` that follow."""
        return self._add(Fault(op, path, errno=error, after=after, times=times, percent=percent))

    def flip_bits(self, path: str, *, after: int = 0, times: int | None = 1, percent: float = 100) -> Fault:
        """Let reads return one wrong bit; the medium keeps the right one."""
        return self._add(Fault("read", path, flip=True, after=after, times=times, percent=percent))

    def slow(self, op: str, path: str, latency_s: float, *, times: int | None = None, percent: float = 100) -> Fault:
        """Let operations take ``latency_s`` longer."""
        return self._add(Fault(op, path, latency_s=latency_s, times=times, percent=percent))

    def clear_faults(self) -> None:
        """Remove every fault."""
        for fault in self._faults:
            fault.remove()
        self._faults.clear()

    def contents(self, path: str) -> bytes:
        """What a read of the whole file would return now; raises FileNotFoundError."""
        return bytes(self.inode(path).written)

    def synced_contents(self, path: str) -> bytes:
        """The part of the file that certainly outlives a power loss."""
        return bytes(self.inode(path).synced)

    def damage(self, path: str, offset: int, data: bytes) -> None:
        """Overwrite bytes on the medium behind everyone's back, durably."""
        inode = self.inode(path)
        if offset + len(data) > len(inode.written):
            raise SimError(f"damage past the end of {path}")
        Write(offset, data).apply(inode.written, 0)
        Write(offset, data).apply(inode.synced, 0)

    def paths(self) -> list[str]:
        """Every file, sorted."""
        found: list[str] = []
        directories = [("", self.root)]
        while directories:
            prefix, directory = directories.pop()
            for name, node in directory.entries.items():
                if isinstance(node, Directory):
                    directories.append((f"{prefix}/{name}", node))
                else:
                    found.append(f"{prefix}/{name}")
        return sorted(found)

    def used_bytes(self) -> int:
        """Bytes of all files, those unlinked but still open included."""
        return sum(len(inode.written) for inode in linked(self.root).union(self._open_inodes))

    def mount(self, boot: Boot | None = None) -> MountedDisk:
        """A ``Disk`` over this device, that dies with ``boot``."""
        from geminga.sim.disk_mount import MountedDisk

        return MountedDisk(self, boot)

    # -- for the node and its world

    def discard(self) -> None:
        """The world is over: give the memory of all contents back at once.

        Worlds are cycles, so the garbage collector finds them late, and a file's bytes count as one object to it.
        """
        inodes = dict.fromkeys([*map(self.inode, self.paths()), *self._open_inodes])
        for inode in inodes:
            _clear(inode)
        self.root = Directory()
        self._forget_process()

    def lose_power(self) -> None:
        """Keep what a power loss leaves; forget locks and openings."""
        opened = list(self._open_inodes)
        lose_power(self.root, self._rng)
        self._forget_process()
        kept = set(map(self.inode, self.paths()))
        for inode in opened:
            if inode not in kept:  # only handles of the dead process lead to it
                _clear(inode)

    def lose_process(self) -> None:
        """A killed process: the page cache survives, locks and openings do not."""
        for inode in self._open_inodes:
            inode.openings = 0
        self._forget_process()

    def _forget_process(self) -> None:
        self._open_inodes.clear()
        self.locks.clear()

    # -- for the mount

    def struck(self, op: str, path: str) -> Struck:
        """What the faults do to this operation."""
        return Struck(self._faults, op, path, self._rng)

    def latency_s(self, op: str) -> float:
        """A seeded time for one step; syncs have spikes."""
        if not self.latency_factor:
            return 0.0
        low, high = (100e-6, 2e-3) if op in ("sync", "sync_dir") else (20e-6, 100e-6)
        spike = op == "sync" and self._rng.random() < 0.02
        return self._rng.uniform(low, high) * (20 if spike else 1) * self.latency_factor

    def flipped(self, data: bytes) -> bytes:
        """``data`` with one seeded bit wrong."""
        if not data:
            return data
        wrong = bytearray(data)
        wrong[self._rng.randrange(len(wrong))] ^= 1 << self._rng.randrange(8)
        return bytes(wrong)

    def share_of(self, data: bytes) -> bytes:
        """A seeded prefix: what a failed write may have left."""
        return data[: self._rng.randint(0, len(data))]

    def room_for(self, growth_bytes: int) -> int:
        """How much of ``growth_bytes`` more fits."""
        if self.capacity_bytes >= CAPACITY_BYTES_DEFAULT:
            return growth_bytes
        return max(0, min(growth_bytes, self.capacity_bytes - self.used_bytes()))

    def sync_inode(self, inode: Inode) -> None:
        """Unless the defect is planted, make the file's bytes durable."""
        if not self.ignore_file_sync:
            inode.sync()

    def sync_failed(self, inode: Inode) -> None:
        """A failed fsync loses a share of the pending writes for good."""
        inode.sync_failed(self._rng)

    def sync_directory(self, directory: Directory) -> None:
        """Unless the defect is planted, make the directory's entries durable."""
        if not self.ignore_dir_sync:
            directory.sync()

    def opened(self, inode: Inode) -> None:
        """Count an opening."""
        inode.openings += 1
        self._open_inodes[inode] = None

    def closed(self, inode: Inode) -> None:
        """Count a closing."""
        inode.openings -= 1
        if inode.openings <= 0:
            self._open_inodes.pop(inode, None)

    # -- paths

    def directory(self, path: str) -> Directory:
        """The directory at ``path``; raises FileNotFoundError, NotADirectoryError."""
        return self._directory(split(path), path)

    def _directory(self, names: Sequence[str], path: str) -> Directory:
        node: Inode | Directory = self.root
        for name in names:
            if not isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
            if name not in node.entries:
                raise FileNotFoundError(errno.ENOENT, "no such directory", path)
            node = node.entries[name]
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds ``path`` and the name in it."""
        names = split(path)
        if not names:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return self._directory(names[:-1], path), names[-1]

    def inode(self, path: str) -> Inode:
        """The file at ``path``; raises FileNotFoundError, IsADirectoryError."""
        directory, name = self.parent(path)
        node = directory.entries.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        return node

    def _add(self, fault: Fault) -> Fault:
        self._faults = [old for old in self._faults if old.times != 0]
        self._faults.append(fault)
        return fault


def _clear(inode: Inode) -> None:
    inode.written, inode.synced = bytearray(), bytearray()
    inode.pending.clear()


@lru_cache(maxsize=1024)  # every step of a disk names a path, mostly one of a few
def split(path: str) -> tuple[str, ...]:
    """The names of a path; relative paths start at the root too."""
    names: list[str] = []
    for name in path.split("/"):
        if name == "..":
            names = names[:-1]
        elif name not in ("", "."):
            names.append(name)
    return tuple(names)
