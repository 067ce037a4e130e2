"""Brokers as processes under official clients: how evenly load is spread, how soon a killed one's topics answer."""
