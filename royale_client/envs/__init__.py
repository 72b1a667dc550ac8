"""Environments a client can run, by the word that follows `royale-env-client`."""
