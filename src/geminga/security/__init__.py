"""What proves who somebody is: JSON web tokens, htpasswd files, subjects of certificates. Pure: bytes and times in.

Nothing here reads a file, knows the time or holds a connection; ``broker.authentication`` does. What a stranger sends
is parsed within bounds that each module names, and is refused by a :class:`ValueError` with one sentence.
"""
