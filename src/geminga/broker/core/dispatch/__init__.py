"""Who gets which message: dispatchers of the subscription types, hash ranges, redelivery, counts. Pure."""
