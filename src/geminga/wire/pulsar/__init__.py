"""Pulsar's binary protocol: frames, commands, the hand-written hot codecs, message metadata, key hashes."""
