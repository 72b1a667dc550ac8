"""The two protocol sessions, joined in memory, against each other and against bad peers."""
