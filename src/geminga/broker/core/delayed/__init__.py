"""Messages that wait for their time: buckets by time, columns of chunks, their snapshots. Pure."""
