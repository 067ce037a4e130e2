"""Decisions of producers: batches, frames, routing, the queue of what waits for a receipt. Pure."""
