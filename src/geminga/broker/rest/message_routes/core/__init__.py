"""What messages look like over HTTP: bodies, schemas, message ids, events. Pure."""
