"""A bookie behind a network, behind the same port as one in the process."""

from geminga.bookkeeper.remote.pool import ListedBookie, RemoteBookiePool
from geminga.bookkeeper.remote.registered import RegisteredBookies
from geminga.bookkeeper.remote.remote_bookie import RemoteBookie, frame_bytes_for

__all__ = ["ListedBookie", "RegisteredBookies", "RemoteBookie", "RemoteBookiePool", "frame_bytes_for"]
