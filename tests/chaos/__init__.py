"""Runs that are disturbed or loaded for minutes: stragglers, kills, floods, long learn steps."""
