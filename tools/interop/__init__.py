"""Apache Pulsar's own broker as a judge: started from its public Maven artifacts, for ``make interop``."""
