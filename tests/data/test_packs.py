"""The format of feature packs: what is written is read again, what was changed is refused."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save

from dtpt.data import check_dataset, load_dataset
from dtpt.data import pack as module
from dtpt.data.dataset import Sample
from dtpt.data.pack import (
    CarriedFeatures,
    Manifest,
    PackFile,
    PackSamples,
    PackWriter,
    ViewGroup,
    open_pack,
)
from dtpt.errors import DatasetError, ImageError
from dtpt.views import ViewRecipe

CLASSES = ("cat", "dog", "owl")
RECIPE = ViewRecipe(count=16)
IMAGES, DIMENSIONS = 7, 8


def unit(*shape, seed=0):
    values = np.random.default_rng(seed).normal(size=shape).astype(np.float32)
    return values / np.linalg.norm(values, axis=-1, keepdims=True)


FEATURES = unit(IMAGES, 16, DIMENSIONS)


@pytest.fixture(autouse=True)
def small_shards(monkeypatch):
    monkeypatch.setattr(module, "SHARD_BYTES", 3 * 16 * DIMENSIONS * 4)


def samples(ids=None):
    names = ids or [f"image {k}" for k in range(IMAGES)]
    rows = [Sample(name, k % 3, None, cluster=f"c{k // 2}") for k, name in enumerate(names)]
    return PackSamples.of(rows, [f"key {k}" for k in range(IMAGES)])


def manifest(**changes):
    given = {
        "dataset": "drawn", "classes": CLASSES, "images": IMAGES, "dimensions": DIMENSIONS,
        "dtype": "float32", "samples": PackFile(name="samples.json", sha256="0" * 64, size=0),
        "views": (ViewGroup(recipe=RECIPE, seed=3, views=16, prefixes=(1, 8, 16)),),
    }  # fmt: skip
    return Manifest(**(given | changes))


def written(folder, *, features=FEATURES, ids=None, **changes):
    writer = PackWriter(folder, manifest(**changes), samples=samples(ids))
    for group, images in writer.missing:
        writer.write(group, images=images, features=features[images.start : images.stop])
    return writer.finish()


def edited(folder, change):
    """Change the manifest as somebody who means it would."""
    path = folder / "pack.json"
    content = json.loads(path.read_bytes())
    change(content)
    path.write_text(json.dumps(content))


def test_pack_returns_what_was_written(tmp_path):
    written(tmp_path)
    data = load_dataset(f"pack:{tmp_path}")
    assert (data.classes, data.name) == (CLASSES, f"pack:{tmp_path}")
    assert [s.label for s in data.samples] == [k % 3 for k in range(IMAGES)]
    assert [s.cluster for s in data.samples] == [f"c{k // 2}" for k in range(IMAGES)]
    for k, sample in enumerate(data.samples):
        assert sample.image.key() == f"key {k}"
        assert np.array_equal(sample.image.features(RECIPE, 3), FEATURES[k])
        with pytest.raises(ImageError):
            sample.image.open()
    first = data.samples[0].image
    eight = RECIPE.model_copy(update={"count": 8})
    assert np.array_equal(first.features(eight, 3), FEATURES[0, :8])
    carried = first.carried(eight, 3)
    assert isinstance(carried, CarriedFeatures)
    assert (carried.key(), carried.stamp()) == (first.key(), first.stamp())
    assert list(open_pack(tmp_path).verify()) == []
    assert len(list(tmp_path.glob("views-0-*"))) == 3


def test_half_precision_features_have_length_one(tmp_path):
    pack = written(tmp_path, dtype="float16")
    values = pack.features(4, recipe=RECIPE, seed=3)
    assert values.dtype == np.float32
    assert np.allclose(np.linalg.norm(values, axis=1), 1, atol=1e-6)
    assert np.allclose(values, FEATURES[4], atol=1e-3)


@pytest.mark.parametrize(
    ("recipe", "seed"),
    [
        (RECIPE, 4),
        (RECIPE.model_copy(update={"augmix": False}), 3),
        (RECIPE.model_copy(update={"count": 32}), 3),
        (RECIPE.model_copy(update={"count": 9}), 3),  # encoded in other batches
    ],
)
def test_other_views_are_refused(tmp_path, recipe, seed):
    pack = written(tmp_path)
    with pytest.raises(DatasetError):
        pack.features(0, recipe=recipe, seed=seed)


def test_views_of_unknown_origin_serve_every_recipe(tmp_path):
    pack = written(tmp_path, views=(ViewGroup(views=16),))
    other = ViewRecipe(count=9, augmix=False)
    assert np.array_equal(pack.features(5, recipe=other, seed=77), FEATURES[5, :9])
    with pytest.raises(DatasetError):
        pack.features(5, recipe=ViewRecipe(count=17), seed=0)


def test_killed_writer_continues_and_keeps_whole_shards(tmp_path):
    writer = PackWriter(tmp_path, manifest(), samples=samples())
    shards = writer.missing
    assert [len(images) for _, images in shards] == [3, 3, 1]
    for group, images in shards[:2]:
        writer.write(group, images=images, features=FEATURES[images.start : images.stop])
    with pytest.raises(DatasetError):
        open_pack(tmp_path)
    first, second = sorted(tmp_path.glob("views-0-*"))
    second.write_bytes(first.read_bytes())
    kept = first.stat().st_mtime_ns
    pack = written(tmp_path)
    assert first.stat().st_mtime_ns == kept
    assert list(pack.verify()) == []
    assert pack.digest == written(tmp_path).digest == written(tmp_path / "again").digest
    for other in ({"dtype": "float16"}, {"classes": ("a", "b", "c")}):
        with pytest.raises(DatasetError):
            PackWriter(tmp_path, manifest(**other), samples=samples())
    with pytest.raises(DatasetError):
        PackWriter(tmp_path, manifest(), samples=samples(ids=list("abcdefg")))
    assert open_pack(tmp_path).digest == pack.digest


def _shard(folder):
    return sorted(folder.glob("views-0-*"))[0]


def _resigned(folder, data):
    """Replace a shard, with its right hash and size in the manifest."""
    path = _shard(folder)
    path.write_bytes(data)

    def change(content):
        entry = content["views"][0]["shards"][0]
        entry |= {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}

    edited(folder, change)


def _nan(folder):
    values = FEATURES[:3].copy()
    values[1, 2, 3] = np.nan
    _resigned(folder, save({"features": values}))


def _infinite(folder):
    _resigned(folder, save({"features": FEATURES[:3] * np.float32(np.inf)}))


def _samples(folder, **changes):
    path = folder / "samples.json"
    data = json.dumps(json.loads(path.read_bytes()) | changes).encode()
    path.write_bytes(data)
    entry = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
    edited(folder, lambda content: content["samples"].update(entry))


def _set(*keys, value):
    def change(content):
        *path, last = keys
        for key in path:
            content = content[key]
        content[last] = value

    return lambda folder: edited(folder, change)


SHARD = ("views", 0, "shards", 0)


def _made_folder(path):
    path.unlink()
    path.mkdir()


def _read_all(folder):
    for sample in load_dataset(f"pack:{folder}").samples:
        sample.image.features(RECIPE, 3)


BAD = {
    "truncated": lambda folder: _shard(folder).write_bytes(_shard(folder).read_bytes()[:-9]),
    "missing": lambda folder: _shard(folder).unlink(),
    "a folder": lambda folder: _made_folder(_shard(folder)),
    "changed": lambda folder: _shard(folder).write_bytes(_shard(folder).read_bytes()[:-1] + b"!"),
    "not finite": _nan,
    "infinite": _infinite,
    "zero": lambda folder: _resigned(folder, save({"features": 0 * FEATURES[:3]})),
    "other shape": lambda folder: _resigned(folder, save({"features": FEATURES[:2]})),
    "other type": lambda folder: _resigned(folder, save({"features": FEATURES[:3].astype("f8")})),
    "other tensor": lambda folder: _resigned(folder, save({"feature": FEATURES[:3]})),
    "no tensor": lambda folder: _resigned(folder, b"\xff" * 64),
    "no manifest": lambda folder: (folder / "pack.json").unlink(),
    "no JSON": lambda folder: (folder / "pack.json").write_bytes(b"{"),
    "newer format": _set("format", value=2),
    "many images": _set("images", value=2**31),
    "many views": _set("views", 0, "views", value=4096),
    "other dimensions": _set("dimensions", value=9),
    "fewer classes": _set("classes", value=["cat"]),
    "no classes": _set("classes", value=[]),
    "path outside": _set(*SHARD, "name", value="../shard.safetensors"),
    "same shard twice": lambda folder: edited(
        folder,
        lambda c: c["views"][0]["shards"][1].update(c["views"][0]["shards"][0]),
    ),
    "other size": _set(*SHARD, "size", value=10**15),
    "no images in a shard": _set(*SHARD, "images", value=0),
    "prefixes beyond": _set("views", 0, "prefixes", value=[1, 16, 64]),
    "duplicate ids": lambda folder: _samples(folder, ids=["image 0"] * IMAGES),
    "labels outside": lambda folder: _samples(folder, labels=[3] * IMAGES),
    "no UTF-8": _set("licence", value="\ud800"),
    "keys without UTF-8": lambda folder: _samples(folder, keys=["\ud800"] * IMAGES),
    "fewer labels": lambda folder: _samples(folder, labels=[0]),
}


@pytest.mark.parametrize("damage", BAD)
def test_bad_packs_are_refused(tmp_path, damage):
    written(tmp_path)
    module._opened.cache_clear()
    BAD[damage](tmp_path)
    with pytest.raises(DatasetError):
        _read_all(tmp_path)


@pytest.mark.parametrize("damage", ["changed", "not finite", "duplicate ids"])
def test_verify_names_what_is_wrong(tmp_path, damage):
    written(tmp_path)
    assert check_dataset(f"pack:{tmp_path}", deep=True).ok
    BAD[damage](tmp_path)
    assert len(list(open_pack(tmp_path).verify())) == 1


def test_other_pack_in_the_same_folder_is_noticed(tmp_path):
    written(tmp_path)
    sample = load_dataset(f"pack:{tmp_path}").samples[0]
    shutil.rmtree(tmp_path)
    module._opened.cache_clear()
    with pytest.raises(ImageError):
        sample.image.key()
    written(tmp_path, features=unit(IMAGES, 16, DIMENSIONS, seed=5))
    with pytest.raises(ImageError):
        sample.image.features(RECIPE, 3)
