"""Policies: networks that turn observations into actions, and what they are made of."""
