"""The documentation held against the code: its commands run, its names exist."""
