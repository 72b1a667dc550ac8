"""The two commands as a user meets them: real processes, real sockets, on this machine."""
