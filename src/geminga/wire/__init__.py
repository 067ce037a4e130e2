"""Bytes of Pulsar and BookKeeper: frames, commands, entries, digests, metadata. Pure: values in, bytes out, and back.

What a codec gives, official clients and Apache's servers read; what they send decodes, or raises an error with the why.
Hand-written paths give the same as the generated classes in ``_generated``, which property tests hold.
"""
