"""The shared format: codec, spaces, messages and grammar. numpy, msgpack and the standard library.

It does no I/O, reads no clock and knows no environment, policy or socket. Import its modules.
"""
