"""A run on disk: where its files lie, who may write them, and the thread that does.

``layout`` names every path, ``prepare`` validates, ``directory`` creates, ``lock`` keeps a second
process out, ``identity`` says whether it is still the same run, ``records`` appends lines that are
whole or isolated, ``writer`` is the writer thread, and ``attempt`` joins them. Never computes
anything that is learned from.
"""
