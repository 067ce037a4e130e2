"""Reading what was compacted of a topic, below the subscriptions that do."""
