"""An algorithm that learns nothing: loads weights, so that rounds are played with them."""
