"""The tree that every metadata store keeps, and the faults that it may be told to have. Pure.

A change names the version it expects, and is done for one node at a time: no more is promised than ZooKeeper can keep.
"""
