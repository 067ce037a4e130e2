"""How the client reaches a broker: service URLs, lookup, the pool of connections, and the link that is renewed."""
