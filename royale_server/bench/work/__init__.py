"""The yardsticks: each module measures one thing in a process of its own. See ``worker``."""
