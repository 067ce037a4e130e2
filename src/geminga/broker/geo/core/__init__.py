"""Pure rules of geo-replication."""
