"""Learning algorithms, their policies and the batch mathematics under both.

Importing this package imports nothing else: the modules below are imported by name, and those
that describe configurations never import torch.
"""
