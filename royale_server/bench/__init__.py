"""``royale bench``: Royale against what a user would do instead, measured in turn on this machine.

    catalog     what is compared with what, and which bar the comparison must reach
    plan        the words of the catalog: contender, claim, bench
    product     a contender: a real server and real clients, as a person starts them
    worker      runs one module of ``work`` in a fresh process: the yardsticks
    stage       starts all these processes and ends every one of them
    rounds      A B A B …: who is measured when
    results     medians, spreads, ratios; the table and the JSON document
    machine     facts about the machine that a number needs beside it

Reads a server's rows and what the kernel says of its process; never takes part in a run.
"""
