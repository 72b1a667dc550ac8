"""Proximal policy optimisation: settings, losses, and the learn step."""
