"""A feature pack of which one file is the input; its hash is made right where a manifest has it."""

import hashlib
import json
from pathlib import Path

import numpy as np
from fuzz_campaign import Target
from fuzz_mutations import damage_bytes, odd_json, odd_safetensors

from dtpt.data import load_dataset
from dtpt.data.pack import _opened
from dtpt.errors import DtptError
from dtpt.runs.packing import write_pack
from dtpt.views import ViewRecipe

MANIFEST = "pack.json"


def pack_targets(folder: Path) -> dict[str, Target]:
    """Return a target for every file of a pack."""
    whole = pack_files(folder)
    shard = next(name for name in whole if name.startswith("views"))
    inputs = {
        "pack": (MANIFEST, odd_json),
        "samples of a pack": ("samples.json", odd_json),
        "shard of a pack": (shard, odd_safetensors),
    }
    return {
        name: Target(
            name,
            [whole[file]],
            [damage_bytes, kind, kind],
            PackInput(file, whole),
            (DtptError,),
        )
        for name, (file, kind) in inputs.items()
    }


def pack_files(folder: Path) -> dict[str, bytes]:
    """Write a small pack; return its files by name."""
    features = np.random.default_rng(0).normal(size=(5, 3, 4))
    labels, clusters = [0, 1, 2, 0, 1], ["a", "a", "b", "c", "c"]
    write_pack(folder, features, classes=["x", "y", "z"], labels=labels, clusters=clusters)
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class PackInput:
    """Reads a whole pack of which one file is the input."""

    def __init__(self, name: str, whole: dict[str, bytes]) -> None:
        self.name, self.whole = name, whole

    def __call__(self, data: bytes, folder: Path) -> None:
        place = folder / "pack"
        place.mkdir(exist_ok=True)
        for name, content in (self.whole | {self.name: data}).items():
            (place / name).write_bytes(content)
        if self.name != MANIFEST:
            (place / MANIFEST).write_bytes(self._signed(data))
        _opened.cache_clear()
        dataset = load_dataset(f"pack:{place}")
        group = dataset.pack.manifest.views[0]
        recipe = group.recipe or ViewRecipe(count=group.views)
        for sample in dataset.samples:
            values = sample.image.features(recipe, group.seed)
            assert values.shape == (group.views, dataset.pack.manifest.dimensions)
            assert np.isfinite(values).all()
        assert list(dataset.pack.verify()) == []

    def _signed(self, data: bytes) -> bytes:
        text = self.whole[MANIFEST].decode()
        entries = [json.loads(text)["samples"], *json.loads(text)["views"][0]["shards"]]
        (entry,) = (entry for entry in entries if entry["name"] == self.name)
        text = text.replace(entry["sha256"], hashlib.sha256(data).hexdigest())
        return text.replace(f'"size": {entry["size"]},', f'"size": {len(data)},').encode()
