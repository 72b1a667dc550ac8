"""A run on disk: where its files lie, who may write them, and the thread that does.

``layout`` names every path, ``prepare`` validates and creates the directory, ``lock`` keeps a
second process out, ``records`` appends lines that are whole or isolated, ``writer`` is the writer
thread. Never computes anything that is learned from.
"""
