"""The proxy: speaks Pulsar's proxy protocol between clients and brokers that they can not reach. See DESIGN.md."""
