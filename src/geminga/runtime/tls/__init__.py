"""TLS of servers and clients from files: what is asked for, what is wrong with it, contexts that follow their files.

Loaded by who is asked for TLS, and by nobody else. :mod:`.settings` has the values, :mod:`.material` reads certificates
and keys, :mod:`.contexts` makes OpenSSL's contexts of them, :mod:`.following` exchanges those under way.
"""
