"""What developers run, and what demo, bench and tests share."""
