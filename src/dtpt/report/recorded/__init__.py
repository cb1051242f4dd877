"""One run that takes too long for a demonstration, kept as aggregates: every number, no rows.

    schema.py     what a record holds
    making.py     from the stores of a run to a record
    checking.py   is a new run the recorded one again?
    tables.py     a record as tables of a report

The record of the package is `demo.json`. It is made anew by

    dtpt demo --full --record src/dtpt/report/recorded/demo.json

or, from a run that is already there, with `--from RUN` in addition.
"""

from dtpt.report.recorded.checking import RecordCheck, check_record
from dtpt.report.recorded.making import make_record
from dtpt.report.recorded.schema import Record, load_record, read_record
from dtpt.report.recorded.tables import recorded_tables

__all__ = [
    "Record",
    "RecordCheck",
    "check_record",
    "load_record",
    "make_record",
    "read_record",
    "recorded_tables",
]
