"""What the tests of runs share with the processes they start and kill."""

import hashlib
import json
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from dtpt.clip.config import ClipConfig, TextConfig, VitConfig
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.runs import EvalOptions, Run, results_of
from dtpt.runs.results import sample_records
from dtpt.runs.rows import Row

TINY_OPTIONS = {
    "model": "tiny",
    "method": ("zero-shot", "tpt", "d-tpt"),
    "views": 4,
    "threads": 1,
    "view_workers": 0,
    "quiet": True,
    "rho": 0.5,
}

# beside images: two streams, of which parts are stored
WITH_STREAMS = {"method": (*TINY_OPTIONS["method"], "tda"), "order_seeds": (0, 1)}

ROW = Row(0, 0.5, 1.0, 0.5, 0.4, "[[0,0.5]]", 0, 0.5)  # where any row will do


def tiny_clip(seed: int = 0) -> Clip:
    """A random two-tower model at 32 pixels."""
    config = ClipConfig(
        embed_dim=16,
        activation="quick_gelu",
        vision=VitConfig(image_size=32, patch_size=16, width=16, layers=1, heads=2, mlp_width=32),
        text=TextConfig(
            context_length=16, vocab_size=49408, width=16, layers=1, heads=2, mlp_width=32
        ),
    )
    model = Clip(
        config,
        tokenizer=Tokenizer.clip_default(context_length=16),
        preprocessing=Preprocess.openai(32),
        fingerprint=hashlib.sha256(f"tiny {seed}".encode()).hexdigest(),
    )
    initialise(model, torch.Generator().manual_seed(seed))
    return model.requires_grad_(False).eval()


def draw_images(folder: Path, *, per_class: int, classes: tuple[str, ...] = ()) -> None:
    """Write PNGs of noise, each different, one folder per class."""
    generator = np.random.default_rng(0)
    for name in classes or ("bird", "cat", "dog"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for index in range(per_class):
            values = generator.integers(0, 255, (36, 44, 3), dtype=np.uint8)
            Image.fromarray(values).save(folder / name / f"{index:03d}.png")


def make_home(folder: Path, *, per_class: int) -> Path:
    """Save the tiny model and some images, which other processes can load by name."""
    save_model(tiny_clip(), folder / "tiny", tokenizer_json=None)
    draw_images(folder / "images", per_class=per_class)
    return folder


def named_options(home: Path, output: Path, **changes: object) -> EvalOptions:
    """Return the options of a run on what `make_home` made."""
    by_name = {
        "model": f"local-dir:{home / 'tiny'}",
        "dataset": (f"folder:{home / 'images'}",),
        "cache": False,
    }
    return EvalOptions(**{**TINY_OPTIONS, **by_name, "output": output, **changes})


def exported(run: Run) -> bytes:
    """All that a run exports, without when and in how many sessions it was computed."""
    document = results_of(run).document()
    del document["date"]
    rows = [record for name in run.datasets for record in sample_records(run, name)]
    return json.dumps([document, rows], allow_nan=False).encode()
