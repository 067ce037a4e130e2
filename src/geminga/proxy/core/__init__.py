"""What a proxy decides: how far a connection is, where it may lead, what is said to a broker. Pure."""
