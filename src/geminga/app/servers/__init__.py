"""The servers, composed: standalone, broker of a cluster and its children, bookie, auto-recovery, embedded."""
