"""A bookie as a server: BookKeeper's wire protocol, every version on one port, over the bookie's port."""

from geminga.bookie.serving.server import BookieServer, TakenPort

__all__ = ["BookieServer", "TakenPort"]
