"""Everything that can refuse a run before it costs hours: two phases of pure checks over facts.

``examine`` and the model thread gather facts; the checks of ``start_checks`` and ``client_checks``
judge them and touch nothing; ``report`` says what came of it. Nothing here starts, edits, moves or
deletes anything, and nothing can be forced. ``royale-server`` and ``royale doctor`` run the same.
"""
