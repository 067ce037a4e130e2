"""What a pipeline file says, checked: pure, without Spark and without a client."""
