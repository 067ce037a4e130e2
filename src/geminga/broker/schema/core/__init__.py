"""Pure parts of the schema registry: Avro definitions, compatibility, validity, formats."""
