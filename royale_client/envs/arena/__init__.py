"""The arena: a two-seat card battle on a tile grid, N battles at once, in integers; no torch."""
