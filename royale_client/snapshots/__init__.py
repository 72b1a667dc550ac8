"""Snapshots of environments as bytes: what is in them, and how it is captured and put back.

Nothing in here talks to a server, and nothing is ever unpickled: a snapshot is plain data and
arrays. An environment whose state is not known completely is refused, never half captured.
"""
