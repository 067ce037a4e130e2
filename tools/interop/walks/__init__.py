"""Random walks: the same steps of clients and administration at two brokers, which must be seen to do the same."""
