"""Runs on several machines through Ray: another crew for the same scheduler.

    connection.py   joining a cluster, or starting one here; wrong addresses and versions
    machines.py     what a machine is, and how many copies of the model it takes
    goods.py        model files and pictures: which a machine lacks, and sending them once
    actors.py       what runs on the machines: a porter for each, and replicas
    mailbox.py      answers of other processes, handled one after the other in the driver
    supply.py       sending a machine what it lacks, piece by piece, while others work
    fleet.py        the machines: greeted when they join, forgotten when they go
    crew.py         the replicas: batches to them, rows from them, faults
    opening.py      from a prepared run to its crew
    division.py     how a run would be divided (`--plan`), measured on each kind of machine

The driver owns the run and is the only writer. Machines are told what to do in batches of sample
ids, and only rows come back. Nothing here is imported without `--engine ray`.
"""
