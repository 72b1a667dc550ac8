"""Alarms: yes-or-no questions about one row of numbers, and what follows from a yes.

The rules are pure and read no clock: numbers in, records out. What reads a row from disk, writes
records and stops a run is elsewhere.
"""
