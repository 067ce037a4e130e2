"""What tests of the data source for Spark share."""
