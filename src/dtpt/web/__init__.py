"""The playground: one page and a small HTTP service around one model.

    options.py      what the operator decides: address, files, limits
    guard.py        who may send requests, limits of a request, every error with its stable code
    connection.py   one HTTP connection: its limits, refusals while a body is still being sent
    deadline.py     a check before every operation of torch
    queue.py        one thread that computes, a bounded queue, deadlines, cancellation
    schemas.py      the JSON that comes in and goes out
    playground.py   image and settings in, predictions out: a thin layer over `Predictor`
    evidence.py     whether a confidence can be trusted: runs, calibrations, a CSV file
    presets.py      class lists and drawings on offer, and the files of the page
    app.py          HTTP: routes, requests, responses;  telemetry.py: log lines, counters
    server.py       the process: socket, signals, model

Nothing outside this folder and `dtpt.cli` imports it; `pip install "dtpt[serve]"` installs what it
needs. Images and CSV files that clients send stay in memory and are never written to disk.
"""
