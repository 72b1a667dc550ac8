"""The model thread: it alone owns torch, the policy, the learner and rollout storage.

engine.py  executes infer, learn and snapshot on whatever thread calls it
worker.py  one thread that runs such jobs, one at a time and in order
build.py   makes policy, learner and storage from the configuration and the spaces
"""
