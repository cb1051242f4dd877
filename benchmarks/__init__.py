"""Benchmarks of speed and memory: `python -m benchmarks NAME [--json]`, from the repository's root.

Each is one module with one function of that name, which returns what `--json` prints: tuning,
end-to-end, views, pipeline, runs, chunks, cluster, serve, rows, sizing, packs, streams.
`measuring.py` has what they share; `reference_towers.py` and `reference_views.py` are the
baselines, the procedure of the peers' released code. A ratio compares two variants that were
measured in turns in one process. No test depends on a time. The keys of the JSON stay as they were
first published, so that results of all versions can be compared: `plain` is the baseline,
`pictures` are images, `replicas` are workers, and the `workers` of `pipeline` make views.
"""
