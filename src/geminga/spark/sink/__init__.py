"""The sink: rows of Spark become messages."""
