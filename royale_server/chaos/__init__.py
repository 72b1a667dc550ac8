"""A network that misbehaves on purpose: faults drawn from a seed, and a TCP proxy that has them.

Knows nothing of what travels through it, and never imports torch.
"""
