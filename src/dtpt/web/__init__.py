"""The playground: one page and a small HTTP service around one model.

    limits.py       what a request may ask for, and reading its body within that
    refusals.py     every error that a client can get, with its stable code
    security.py     who may ask: host, origin, header, token; headers of every answer
    worker.py       one thread that computes, a bounded queue, deadlines, cancelling
    cache.py        what is kept between requests, bounded by memory
    schemas.py      the JSON that comes in and goes out
    answering.py    a picture and settings in, answers out
    words.py, thumbnails.py, evidence.py, commands.py, scoring.py, presets.py    its parts
    requests.py     from HTTP to settings, and back
    app.py          the routes
    server.py       the process: socket, signals, log

Nothing outside this folder and `dtpt.cli` knows of it; `pip install "dtpt[serve]"` brings what it
needs. Pictures and CSV files that people send stay in memory and are written nowhere.
"""
