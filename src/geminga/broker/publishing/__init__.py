"""What publishing to a topic stands on, whether its messages are stored or not."""
