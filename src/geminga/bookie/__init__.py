"""The storage node: journal, write cache, entry logs, index, checkpoint, garbage collection, fencing."""

from geminga.bookie.bookie import LocalBookie
from geminga.bookie.config import BookieConfig, Defects
from geminga.bookie.disk_io import DiskLanes
from geminga.bookie.ports import LiveLedgers

__all__ = ["BookieConfig", "Defects", "DiskLanes", "LiveLedgers", "LocalBookie"]
