"""The schema registry: stores the schemas of topics and checks whether a new one fits."""
