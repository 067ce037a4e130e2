"""The settings of a broker, as one value."""
