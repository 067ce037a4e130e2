"""Who peers are: Pulsar's providers of authentication behind the ports of :mod:`geminga.broker.access`.

Loaded where ``authenticationEnabled`` asks for it. What a credential proves is found out in :mod:`geminga.security`;
here are the files, the clock, threads for what takes long, what is counted, and which provider is asked.
"""
