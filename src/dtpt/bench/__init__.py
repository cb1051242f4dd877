"""Measurements of speed and memory, each a comparison inside one run.

    views.py        making the views of a picture, the peers' way and ours
    tuning.py       the text side of one picture, Algorithm 1 as printed and the engine
    end_to_end.py   the whole path of one picture, for one, five and twenty settings
    pipeline.py     pictures per second of a whole run, and how busy the cores are
    chunks.py       what the fixed sizes of chunks and batches cost on this machine
    runs.py         whole runs: one method, five, and other λ from the cache
    cluster.py      what the driver of a cluster stores at most, and what Ray costs a picture
    serve.py        the service: answers per second, waiting times, memory
    rows.py         bytes of a stored row
    sizing.py       what the paper's tables cost, counted

    timing.py       how: in turns, equally often, the best of each
    memory.py       peak memory, in a process of its own
    machine.py      on what: stands in every result

A ratio compares two ways that were measured in turns in one process. No test depends on a time.
"""
