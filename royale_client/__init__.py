"""The environment side of Royale: wire protocol, sessions, transports and environment drivers."""
