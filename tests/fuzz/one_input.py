"""Writes one input of a fuzzer to the standard output.

python tests/fuzz/one_input.py TARGET SEED NUMBER > input
"""

import sys
import tempfile
from pathlib import Path

import conftest  # noqa: F401 - the paths of the modules below

# isort: split
from fuzz_targets import made_targets

if __name__ == "__main__":
    wanted, seed, number = sys.argv[1:4]
    with tempfile.TemporaryDirectory() as folder:
        target = made_targets(Path(folder))[wanted]
        sys.stdout.buffer.write(target.input(int(number), seed=int(seed)))
