"""An algorithm without a model: pretends to infer and to learn, to check connections."""
