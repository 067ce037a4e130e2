"""The admin REST, lookup over HTTP and ``/metrics``: paths, statuses, reasons and JSON as Pulsar's.

What a request breaks ends in its own 500. A path that Pulsar has and this broker has not answers 501 with its reason.
"""
