"""One interface to run tasks inline, in worker processes, or on a Ray cluster.

process.py   one worker process and the pipe to it
pool.py      the interface, inline and supervised processes
ray.py       the same on the nodes of a Ray cluster (extra `ray`)
"""
