"""What a simulated disk holds: two images of every file and directory, the one written and the one synced.

``written`` is what the running system reads back (the page cache); ``synced`` is what certainly outlives a power
loss. Between them lie the pending changes, in order. A power loss keeps the synced image plus a seeded share of
the pending changes, by block: each 4 KiB page of a file may be found as it was after any of the changes to it,
and may be torn at 512-byte sectors between two such states; the size of the file, and each entry of a
directory, may be old or new independently of the data. So nothing is promised that POSIX does not promise.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from geminga.sim.rng import Stream

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512


class Write:
    """A pending write of ``data`` at ``offset``."""

    __slots__ = ("data", "offset")

    def __init__(self, offset: int, data: bytes) -> None:
        self.offset = offset
        self.data = data

    def size_after(self, size_bytes: int) -> int:
        """The file's size after this change to a file of ``size_bytes``."""
        return max(size_bytes, self.offset + len(self.data))

    def pages(self, size_bytes_max: int) -> range:
        """Indexes of the pages it touches."""
        if not self.data:
            return range(0)
        return range(self.offset // PAGE_BYTES, (self.offset + len(self.data) - 1) // PAGE_BYTES + 1)

    def apply(self, content: bytearray, start: int) -> None:
        """Apply what falls into ``content``, which is the part of the file from ``start``."""
        first = max(self.offset, start)
        last = min(self.offset + len(self.data), start + len(content))
        if first < last:
            content[first - start : last - start] = self.data[first - self.offset : last - self.offset]


class Resize:
    """A pending truncation or extension with zeros."""

    __slots__ = ("size_bytes",)

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes

    def size_after(self, size_bytes: int) -> int:
        """The file's size after this change."""
        return self.size_bytes

    def pages(self, size_bytes_max: int) -> range:
        """Indexes of the pages it touches: all that it cuts."""
        return range(self.size_bytes // PAGE_BYTES, (size_bytes_max + PAGE_BYTES - 1) // PAGE_BYTES)

    def apply(self, content: bytearray, start: int) -> None:
        """Zero what lies behind the new end: an extension later on shows zeros there."""
        cut = max(self.size_bytes - start, 0)
        if cut < len(content):
            content[cut:] = bytes(len(content) - cut)


Change: TypeAlias = Write | Resize


class Inode:
    """A file's two images and the changes between them."""

    __slots__ = ("openings", "pending", "synced", "written")

    def __init__(self) -> None:
        self.written = bytearray()
        self.synced = bytearray()
        #: Changes since the last sync, in order.
        self.pending: list[Change] = []
        #: How often it is open: an unlinked file holds its space until it is closed.
        self.openings = 0

    def change(self, change: Change) -> None:
        """Apply ``change`` to the written image."""
        self.pending.append(change)
        _apply_whole(self.written, change)

    def sync(self) -> None:
        """Make everything written so far durable."""
        for change in self.pending:
            _apply_whole(self.synced, change)
        self.pending.clear()

    def sync_failed(self, rng: Stream) -> None:
        """As Linux after a failed writeback: pages are marked clean, lost on the medium, whatever later syncs say."""
        self.synced = self.after_power_loss(rng)
        self.pending.clear()

    def after_power_loss(self, rng: Stream) -> bytearray:
        """The synced image with a seeded share of the pending changes."""
        count = len(self.pending)
        mode = rng.random()
        if not count or mode < 0.2:
            return bytearray(self.synced)
        if mode < 0.4:  # everything happened to be written back
            return bytearray(self.written) if mode < 0.3 else self._with_prefix(rng.randint(0, count))
        return self._with_pages(rng)

    def _with_prefix(self, count: int) -> bytearray:
        content = bytearray(self.synced)
        for change in self.pending[:count]:
            _apply_whole(content, change)
        return content

    def _with_pages(self, rng: Stream) -> bytearray:
        sizes = [len(self.synced)]
        for change in self.pending:
            sizes.append(change.size_after(sizes[-1]))
        size_bytes_max = max(sizes)
        touching: dict[int, list[Change]] = {}
        for change in self.pending:
            for page in change.pages(size_bytes_max):
                touching.setdefault(page, []).append(change)
        content = bytearray(self.synced)
        content.extend(bytes(size_bytes_max - len(content)))
        keep_percent = rng.choice((10, 50, 90))
        for page in sorted(touching):
            if rng.random() * 100 < keep_percent:
                start = page * PAGE_BYTES
                content[start : start + PAGE_BYTES] = _page_after_loss(
                    content[start : start + PAGE_BYTES], start, touching[page], rng
                )
        size_bytes = sizes[-1] if rng.random() < 0.5 else rng.choice(sizes)
        del content[size_bytes:]
        return content


def _page_after_loss(page: bytearray, start: int, changes: list[Change], rng: Stream) -> bytearray:
    newest = rng.randint(1, len(changes)) if rng.random() < 0.5 else len(changes)
    torn_against = rng.randint(0, newest - 1) if rng.random() < 0.5 else newest
    older = page
    page = bytearray(page)
    for index, change in enumerate(changes[:newest]):
        if index == torn_against:
            older = bytearray(page)
        change.apply(page, start)
    if torn_against < newest:
        for sector in range(0, len(page), SECTOR_BYTES):
            if rng.random() < 0.5:
                page[sector : sector + SECTOR_BYTES] = older[sector : sector + SECTOR_BYTES]
    return page


def _apply_whole(content: bytearray, change: Change) -> None:
    size_bytes = change.size_after(len(content))
    if size_bytes > len(content):
        content.extend(bytes(size_bytes - len(content)))
    del content[size_bytes:]
    change.apply(content, 0)


class Directory:
    """A directory's two images; entries are files or directories by name."""

    __slots__ = ("entries", "pending", "synced")

    def __init__(self) -> None:
        self.entries: dict[str, Inode | Directory] = {}
        self.synced: dict[str, Inode | Directory] = {}
        #: Changes since the last sync, in order; each sets names (None: removed), atomically.
        self.pending: list[dict[str, Inode | Directory | None]] = []

    def change(self, names: dict[str, Inode | Directory | None]) -> None:
        """Set or remove entries, as one change."""
        self.pending.append(names)
        _set_names(self.entries, names)

    def sync(self) -> None:
        """Make all entries durable."""
        self.pending.clear()
        self.synced = dict(self.entries)

    def lose_power(self, rng: Stream) -> None:
        """Fall back to the synced entries plus a seeded share of the pending changes."""
        kept = dict(self.synced)
        mode = rng.random()
        if mode < 0.25:
            chosen = []
        elif mode < 0.6:  # as a journaling file system: a prefix
            chosen = self.pending[: rng.randint(0, len(self.pending))]
        else:
            chosen = [names for names in self.pending if rng.random() < 0.5]
        for names in chosen:
            _set_names(kept, names)
        self.entries, self.synced = kept, dict(kept)
        self.pending.clear()


def _set_names(entries: dict[str, Inode | Directory], names: dict[str, Inode | Directory | None]) -> None:
    for name, node in names.items():
        if node is None:
            entries.pop(name, None)
        else:
            entries[name] = node


def lose_power(root: Directory, rng: Stream) -> None:
    """Turn the tree below ``root`` into what a power loss leaves of it."""
    directories: list[Directory] = [root]
    seen: dict[Inode, None] = {}
    while directories:
        directory = directories.pop()
        directory.lose_power(rng)
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                directories.append(node)
            elif node not in seen:
                seen[node] = None
                content = node.after_power_loss(rng)
                node.pending.clear()
                node.written, node.synced, node.openings = content, bytearray(content), 0


def linked(root: Directory) -> set[Inode]:
    """The files reachable from ``root``."""
    found: set[Inode] = set()
    directories = [root]
    while directories:
        for node in directories.pop().entries.values():
            if isinstance(node, Directory):
                directories.append(node)
            else:
                found.add(node)
    return found
