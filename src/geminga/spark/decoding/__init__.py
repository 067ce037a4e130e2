"""Payloads to columns: JSON, Avro and protobuf values, exact or an error."""
