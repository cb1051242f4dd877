"""Damaged files of every kind are loaded or refused, and never fail in another way.

    DTPT_FUZZ=100000 DTPT_FUZZ_SEED=7 pytest tests/fuzz -q

Every input depends on seed, target and number alone. To look at one:

    python tests/fuzz/one_input.py "run store" 7 1234 > input

`corpus/TARGET/` keeps inputs that once broke something, large ones compressed. A new target is an
entry of `fuzz_targets.made_targets` (valid files, kinds of damage, the function that reads them)
and its name in `NAMES`.
"""

import gzip
import os
import random
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from fuzz_campaign import Replay, Target, attack, summary
from fuzz_targets import made_targets

CORPUS = Path(__file__).parent / "corpus"
NAMES = (
    "tokenizer", "pieces", "merges", "safetensors", "torchscript", "state dict", "old state dict",
    "own config", "foreign configs", "added models", "options", "calibration", "run store",
    "edited run store", "pack", "samples of a pack", "shard of a pack",
)  # fmt: skip
SOME = 300  # inputs of each target in the normal run of the tests
LEAST_REFUSED = 0.2  # of the inputs; fewer would mean that the damage does not reach the loader

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="limits of memory and processor time as on Linux"
)


@pytest.fixture(scope="module")
def targets(tmp_path_factory):
    return made_targets(tmp_path_factory.mktemp("valid"))


@pytest.fixture(scope="module")
def seed():
    given = os.environ.get("DTPT_FUZZ_SEED")
    default = random.SystemRandom().randrange(10**6) if "DTPT_FUZZ" in os.environ else 0
    return int(given) if given else default


def test_all_targets_have_a_test(targets):
    assert set(targets) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_intact_files_are_loaded(targets, tmp_path, monkeypatch, name):
    monkeypatch.setenv("DTPT_CONFIG", os.devnull)
    for data in targets[name].valid:
        targets[name].load(data, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_damaged_files_are_loaded_or_refused(targets, tmp_path, capsys, seed, name):
    count = int(os.environ.get("DTPT_FUZZ", SOME))
    outcome = attack(targets[name], count, seed=seed, folder=tmp_path)
    if "DTPT_FUZZ" in os.environ:
        with capsys.disabled():
            print(f"\nseed {seed}, {summary(targets[name], outcome)}")
            for breach in outcome.breaches:
                print(f"  {breach}")
    found = "".join(f"\n  {breach}" for breach in outcome.breaches)
    assert outcome.broke == 0, f"seed {seed}, {summary(targets[name], outcome)}{found}"
    assert outcome.refused > LEAST_REFUSED * count


@pytest.mark.parametrize("name", sorted(path.name for path in CORPUS.iterdir()))
def test_inputs_that_once_broke_something_do_so_no_more(targets, tmp_path, name):
    paths = sorted((CORPUS / name).iterdir())
    settings = {f.name: getattr(targets[name], f.name) for f in fields(Target)}
    inputs = [
        gzip.decompress(p.read_bytes()) if p.suffix == ".gz" else p.read_bytes() for p in paths
    ]
    replay = Replay(**settings, inputs=inputs)
    found = attack(replay, len(paths), seed=0, folder=tmp_path)
    assert [f"{paths[breach.number].name}: {breach.what}" for breach in found.breaches] == []
