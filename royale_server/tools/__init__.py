"""The command ``royale``: looks at runs and checks them. One module a subcommand.

Reads runs from their files; never takes part in one and never imports torch for help or listings.
"""
