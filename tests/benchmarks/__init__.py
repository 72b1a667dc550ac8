"""Measurements that a person may run, and that slow tests hold to their bars."""
