"""What applications see of the client, and the values that all its parts share: errors, ids, options, transactions."""
