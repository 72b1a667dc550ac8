"""How good a policy is: paired battles against scripted players and other policies."""
