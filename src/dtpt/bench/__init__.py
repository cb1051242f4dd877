"""Measurements of speed and memory, each a comparison inside one run.

    views.py        making the views of a picture, the peers' way and ours
    tuning.py       the text side of one picture, Algorithm 1 as printed and the engine
    end_to_end.py   the whole path of one picture, for one, five and twenty settings
    runs.py         whole runs: one method, five, and other λ from the cache
    cluster.py      what the driver of a cluster stores at most, and what Ray costs a picture
    sizing.py       what the paper's tables cost, counted

    timing.py       how: in turns, equally often, the best of each
    memory.py       peak memory, in a process of its own
    machine.py      on what: stands in every result

A ratio compares two ways that were measured in turns in one process. No test depends on a time.
"""
