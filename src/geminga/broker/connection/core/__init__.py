"""What a connection's states are, and why it is not read: no loop, no socket, no clock."""
