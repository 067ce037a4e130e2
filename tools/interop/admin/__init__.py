"""Each command of ``pulsar-admin`` once at both brokers: does it end the same way, and does it print the same?"""
