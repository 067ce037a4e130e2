"""Messages as consumers get them: entries, their acknowledgements, and the options and interface of a consumer."""
