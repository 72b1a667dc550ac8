"""Serve an environment from Python: one call, until the server stops."""

import logging
import sys

import gymnasium as gym

from royale_client import serve_env

logging.basicConfig(level="INFO", format="%(message)s")
url = sys.argv[1] if len(sys.argv) > 1 else "ws://127.0.0.1:8000"
serve_env(gym.make("corridor:Corridor-v0"), url, client_name="corridor")
