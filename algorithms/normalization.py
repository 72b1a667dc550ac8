"""Running statistics and the normalisers of observations and rewards that stand on them.

Statistics move only when ``update`` is called: they are part of the policy version, frozen while
frames are collected and updated as the last act of a learn step. Numbers that are not finite
never enter. Float64 NumPy throughout, no torch; states are dictionaries of arrays.
Letters: M frames in sequence order.
"""
