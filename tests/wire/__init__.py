"""The shared format: codec, spaces, values, messages, grammar, errors."""
