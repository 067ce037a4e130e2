"""Words and decisions of access: actions, resources, principals, the handshake. Pure."""
