"""Who may come in with which schema: a topic's schemas, held against its policies."""
