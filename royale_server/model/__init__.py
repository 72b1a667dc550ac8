"""The model thread: torch, policy, learner and storage are its alone while it has a job.

engine.py  executes infer, learn and snapshot on whatever thread calls it
keeping.py writes what is kept of a batch once its answers are on their way
worker.py  one thread that runs such jobs, one at a time and in order
build.py   makes policy, learner and storage from the configuration and the spaces
"""
