"""The programs of Pulsar's image (``bin/pulsar``, ``bin/pulsar-client``, ...) in words of ``geminga``: ../DESIGN.md."""
