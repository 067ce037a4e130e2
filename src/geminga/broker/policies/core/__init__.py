"""Pure decisions about policies."""
