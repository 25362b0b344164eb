"""Bodies in Avro, decoded with a schema that a person gives. Pure."""
