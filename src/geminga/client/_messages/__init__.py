"""Messages as consumers get them: entries, their acknowledgments, and the options and interface of a consumer."""
