"""Work over all topics, from time to time: idle topics, old ledgers, ledgers that nobody names."""
