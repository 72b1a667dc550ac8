"""Self-play: who sits in each seat of a battle, and which snapshots are opponents.

Pure: no I/O, no clock, no threads, no torch. The weights of snapshots live on the model thread.

    config        the settings, checked
    assignment    (seed, client, environment, episode) -> who sits where
    pool          which snapshots there are, and which few of them play now
    book          who plays each slot now and next
"""
