"""Every path runs on a device that is not the CPU: nothing mixes devices, nothing is float64 there.

There is no accelerator here; `far_device` stands for one. Each path also runs on the CPU, and the
numbers agree.
"""

import copy
import json

import numpy as np
import pytest
import torch
from PIL import Image

from dtpt import Classifier
from dtpt.analysis import analyse, to_json
from dtpt.analysis.bases import common_bases, in_basis
from dtpt.analysis.regularisers import gradient_agreement
from dtpt.clip.config import ClipConfig, ResNetConfig, SmallResNetConfig
from dtpt.clip.model import Clip, initialise
from dtpt.clip.prompts import PromptSet
from dtpt.data import load_dataset
from dtpt.methods import METHODS, resolve_method
from dtpt.methods.algorithm_1 import algorithm_1
from dtpt.runs import EvalOptions, run_options
from dtpt.tuning import Tuner, TuningSettings, step_method
from far_device import DeviceMixture, Far, far_device

NAMES = ["cat", "dog", "red apple", "house", "a very large car"]
TOWERS = {
    "resnet": ResNetConfig(image_size=32, width=8, layers=(1, 1, 2, 1), heads=4),
    "small_resnet": SmallResNetConfig(image_size=32, stem_width=4, widths=(8, 12), layers=(1, 2)),
}
MODIFIERS = ("sals", "no-tdd", "no-idd", "ts=1.2")
STREAMS = [name for name, method in METHODS.items() if method.is_stateful]


@pytest.fixture(params=["vit", *TOWERS])
def any_clip(request, tiny_clip):
    if request.param == "vit":
        return tiny_clip
    config = ClipConfig(
        embed_dim=32, activation="gelu", vision=TOWERS[request.param], text=tiny_clip.config.text
    )
    model = Clip(config, tokenizer=tiny_clip.tokenizer, preprocessing=tiny_clip.preprocessing)
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval().requires_grad_(False)


@pytest.fixture
def views(tiny_clip):
    pixels = torch.randn(20, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return tiny_clip.encode_views(pixels)


@pytest.fixture
def images(tmp_path):
    generator = np.random.default_rng(3)
    for name in ("bird", "cat", "dog"):
        (tmp_path / name).mkdir()
        for index in range(2):
            values = generator.integers(0, 255, (36, 44, 3), dtype=np.uint8)
            Image.fromarray(values).save(tmp_path / name / f"{index}.png")
    return load_dataset(f"folder:{tmp_path}")


def moved(model, device):
    return copy.deepcopy(model).to(device)


def close(far, near, *, atol=1e-6):
    assert isinstance(far, Far)
    torch.testing.assert_close(far.cpu(), near, rtol=0, atol=atol)


def test_towers_compute_where_their_weights_are(any_clip):
    pixels = torch.randn(9, 3, 32, 32)
    with far_device() as device:
        model = moved(any_clip, device)
        assert model.device == device
        assert model.logit_scale == any_clip.logit_scale
        close(model.encode_views(pixels), any_clip.encode_image(pixels))
        close(model.encode_image(pixels.to(device)), any_clip.encode_image(pixels))
        close(model.encode_text(NAMES), any_clip.encode_text(NAMES))
        assert isinstance(model.encode_text([]), Far)


@pytest.mark.parametrize(
    ("template", "steps"),
    [("a photo of a {}.", 2), ("a {} in the wild", 1), ("{} seen from afar", 1)],
)
def test_every_method_and_modifier_tunes_there(tiny_clip, views, template, steps):
    methods = [resolve_method(name) for name, known in METHODS.items() if not known.is_stateful]
    methods += [resolve_method(f"tpt+{modifier}") for modifier in MODIFIERS]
    settings = TuningSettings(steps=steps)
    near = Tuner(tiny_clip, PromptSet.build(tiny_clip, NAMES, template=template), settings=settings)
    expected = near.predict(views, methods)
    with far_device() as device:
        model = moved(tiny_clip, device)
        tuner = Tuner(model, PromptSet.build(model, NAMES, template=template), settings=settings)
        for found, known in zip(tuner.predict(views.to(device), methods), expected, strict=True):
            close(found.probabilities, known.probabilities, atol=1e-4)


@pytest.mark.parametrize("name", [*STREAMS, f"{STREAMS[0]}+stream-temperature"])
def test_every_stream_method_carries_its_state_there(tiny_clip, views, name):
    near = streamed(tiny_clip, name, views)
    with far_device() as device:
        found = streamed(moved(tiny_clip, device), name, views.to(device))
        for far, known in zip(found, near, strict=True):
            close(far, known, atol=1e-4)


def streamed(model, name, views):
    """Return the probabilities of four images, five views each, seen one after the other."""
    tuner, method = Tuner(model, PromptSet.build(model, NAMES)), resolve_method(name)
    state, found = None, []
    for image in views.split(5):
        outcome, state = step_method(tuner, method, views=image, state=state)
        found.append(outcome.probabilities)
    return found


def test_reference_algorithm_runs_there(tiny_clip, views):
    method = resolve_method("d-tpt")
    near = algorithm_1(tiny_clip, PromptSet.build(tiny_clip, NAMES), views=views, method=method)
    with far_device() as device:
        model = moved(tiny_clip, device)
        prompts = PromptSet.build(model, NAMES)
        close(algorithm_1(model, prompts, views=views.to(device), method=method), near, atol=1e-4)


def test_classifier_predicts_there(tiny_clip, images):
    image = images.samples[0].image.open()
    near = Classifier(tiny_clip, NAMES, views=16).predict(image)
    with far_device() as device:
        far = Classifier(moved(tiny_clip, device), NAMES, views=16).predict(image)
    np.testing.assert_allclose(far.probabilities, near.probabilities, atol=1e-4)
    assert far.label == near.label


def test_runs_and_analyses_work_there(tiny_clip, images, tmp_path, monkeypatch):
    monkeypatch.setenv("DTPT_CACHE", str(tmp_path / "cache"))
    options = EvalOptions(
        model="tiny", dataset=("x",), method=("tpt", "d-tpt", "c-tpt"), views=8, quiet=True,
        output=tmp_path / "run", view_workers=0,
    )  # fmt: skip
    near = analyse(options, model=tiny_clip, datasets=[images])
    with far_device() as device:
        model = moved(tiny_clip, device)
        far = analyse(options, model=model, datasets=[images])
        run_options(options, model=model, datasets=[images]).close()
    there, here = (dict(numbers(json.loads(to_json(found))["datasets"])) for found in (far, near))
    assert len(there) > 200
    assert there == pytest.approx(here, rel=1e-2, abs=1e-3)


def test_bases_and_gradients_are_compared_there(tiny_clip, views):
    methods = [resolve_method(name) for name in ("c-tpt", "o-tpt", "d-tpt")]
    found = []
    with far_device() as device:
        for where in ("cpu", device):
            model = moved(tiny_clip, where)
            tuner = Tuner(model, PromptSet.build(model, NAMES))
            bases = common_bases(tuner.initial_text_features, views.to(where).mean(dim=0))
            for name, rotation in bases.items():
                turned = [resolve_method(in_basis(m.method, rotation, name=name)) for m in methods]
                found.append([pair["cosine"] for pair in gradient_agreement(tuner, turned)])
    near, far = found[: len(found) // 2], found[len(found) // 2 :]
    np.testing.assert_allclose(far, near, atol=1e-3)


def numbers(node, path=""):
    """Every number of a JSON document with its place."""
    if isinstance(node, dict | list):
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, value in items:
            yield from numbers(value, f"{path}.{key}")
    elif isinstance(node, int | float):
        yield path, node


PLANTED = {
    "index made on the CPU": lambda x: x[torch.tensor([0, 1])],
    "sum with a vector of the CPU": lambda x: x + torch.ones(3),
    "product with a matrix of the CPU": lambda x: x @ torch.eye(3),
    "written in place": lambda x: x.add_(torch.ones(3)),
    "joined": lambda x: torch.cat([x, torch.ones(1, 3)]),
    "double precision": lambda x: x.double(),
    "memory of the device": lambda x: x.numpy(),
}


@pytest.mark.parametrize("name", PLANTED)
def test_planted_mixture_is_caught(name):
    with far_device() as device:
        x = torch.ones(2, 3).to(device)
        with pytest.raises((DeviceMixture, RuntimeError)):
            PLANTED[name](x)
        assert float((x + torch.tensor(1.0)).sum()) == 12.0  # a number may come from anywhere


def test_mixture_planted_into_the_tower_is_caught(tiny_clip, monkeypatch):
    def careless(length, past, *, device):
        return torch.ones(length, past + length, dtype=torch.bool).tril(past)

    monkeypatch.setattr("dtpt.clip.text._causal_mask", careless)
    with far_device() as device, pytest.raises(DeviceMixture):
        moved(tiny_clip, device).encode_text(NAMES)
