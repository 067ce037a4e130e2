"""Pure parts: parameters of the query, frames of JSON, how many messages may be out, what a socket counted."""
