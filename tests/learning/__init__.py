"""Runs that must learn: a return bar, fixed seeds, minutes each."""
