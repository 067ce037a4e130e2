"""Small worlds for unit tests: a broker, a client, a ledger, with clocks and disks of the simulator."""
