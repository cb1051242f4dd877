"""Small valid files of every kind, from which the fuzzers start."""

import io
import json
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hostile_checkpoints import module, script, tensor
from simulated import drawn
from tiny_checkpoints import PREPROCESSOR

from dtpt.calibration import Calibration, Provenance, Setup, Targets, fit
from dtpt.calibration.checking import temperature_effect
from dtpt.calibration.statements import assumption, guarantees
from dtpt.clip.config import ClipConfig, TextConfig, VitConfig
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import END, START, WORD_END, Tokenizer, byte_symbols
from dtpt.data import fingerprint
from dtpt.runs import DatasetSpec, MethodSpec, ModelSpec, RunSpec
from dtpt.runs.rows import Row, pack
from dtpt.runs.store import SampleRecord, SelectedLambda, Store

CONTEXT = 16
CLASSES = ("a", "b", "c")
TOML = b"""# options of dtpt eval
model = "pocket"
views = 4
method = ["tpt", "d-tpt@1e5"]
seed = [0, 1]
learning_rate = 0.005
quiet = true
lambda = [10, 1e3]

[eval]
dataset = "openmoji/food-drink"
limit = 3
threads = 1
workers = "auto"
template = "a photo of a {}."
output = "out"
rho = 0.1
"""


@cache
def piece_tokenizers() -> list[bytes]:
    """Valid files of a Unigram vocabulary, as SigLIP's, and of a BPE with bytes, as Gemma's."""
    letters = [*"acdefhioptué語", "▁a", "▁ph"]
    names = ["<pad>", "</s>", "<unk>"]
    special = [{"id": i, "content": name, "special": True} for i, name in enumerate(names)]
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    end = {"id": "</s>", "ids": [1], "tokens": ["</s>"]}
    single = [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>"}}]
    shared = {
        "version": "1.0",
        "added_tokens": [flags | token for token in special],
        "post_processor": {"type": "TemplateProcessing", "single": single, "pair": [],
                           "special_tokens": {"</s>": end}},
    }  # fmt: skip
    blanks = {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    unigram = {
        "type": "Unigram", "unk_id": 2, "byte_fallback": False,
        "vocab": [[piece, -float(i)] for i, piece in enumerate([*names, "▁", *letters])],
    }  # fmt: skip
    words = [*names, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *letters[:-2], "▁a"]
    bpe = {
        "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
        "vocab": {word: i for i, word in enumerate(words)}, "merges": [["▁", "a"]],
    }  # fmt: skip
    space = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    trees = [
        {
            **shared,
            "normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, blanks]},
            "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "split": True},
            "model": unigram,
        },
        {**shared, "normalizer": space, "pre_tokenizer": None, "model": bpe},
    ]
    return [json.dumps(tree).encode() for tree in trees]


def tiny_tokenizer() -> Tokenizer:
    """The bytes, three merges, and the two special tokens."""
    merges = [("a", "t" + WORD_END), ("c", "at" + WORD_END), ("p", "h")]
    alphabet = byte_symbols()
    tokens = [*alphabet, *(c + WORD_END for c in alphabet), *(a + b for a, b in merges), START, END]
    vocab = {token: number for number, token in enumerate(tokens)}
    return Tokenizer(
        vocab, merges, start_id=vocab[START], end_id=vocab[END], context_length=CONTEXT
    )


def tiny_model() -> Clip:
    words = tiny_tokenizer()
    vision = VitConfig(image_size=16, patch_size=8, width=8, layers=1, heads=1, mlp_width=16)
    text = TextConfig(
        context_length=CONTEXT,
        vocab_size=words.vocab_size,
        width=8,
        layers=1,
        heads=1,
        mlp_width=16,
    )
    config = ClipConfig(embed_dim=4, activation="gelu", vision=vision, text=text)
    model = Clip(config, tokenizer=words, preprocessing=Preprocess.openai(16))
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval().requires_grad_(False)


def checkpoint_folder(folder: Path) -> dict[str, bytes]:
    """Save the tiny model; return its files by name."""
    save_model(tiny_model(), folder, tokenizer_json=tiny_tokenizer().to_json())
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def state_dict(*, is_archive: bool) -> bytes:
    buffer = io.BytesIO()
    shared = torch.arange(20.0)
    content = {
        **{f"visual.{i}": torch.ones(3, 4) * i for i in range(4)},
        "half": torch.ones(2, 3).half(),
        "counter": torch.tensor(3),
        "view": shared[4:10].reshape(2, 3).T,
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    torch.save(content, buffer, _use_new_zipfile_serialization=is_archive)
    return buffer.getvalue()


def scripted(folder: Path) -> bytes:
    parts = {f"a{i}": tensor() for i in range(3)}
    script(folder, module(**parts, b=module(gelu=module())))
    return (folder / "model.pt").read_bytes()


def foreign_configs(weights: bytes) -> list[dict[str, Any]]:
    """Folders of open_clip and transformers for the tiny model, as one document each."""
    size = tiny_tokenizer().vocab_size
    mean_std = {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}
    vision = {"image_size": 16, "layers": 1, "width": 8, "head_width": 8, "patch_size": 8}
    text = {"width": 8, "heads": 1, "layers": 1, "vocab_size": size, "context_length": CONTEXT}
    ratio = {"mlp_ratio": 2.0}
    model = {"embed_dim": 4, "vision_cfg": vision | ratio, "text_cfg": text | ratio}
    tower = {"hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1}
    tower |= {"num_attention_heads": 1, "hidden_act": "gelu"}
    ids = {"bos_token_id": size - 2, "eos_token_id": size - 1}
    config = {
        "model_type": "clip",
        "projection_dim": 4,
        "text_config": {**tower, **ids, "vocab_size": size, "max_position_embeddings": CONTEXT},
        "vision_config": {**tower, "image_size": 16, "patch_size": 8},
    }
    pixels = {**PREPROCESSOR, "crop_size": 16, "size": {"shortest_edge": 16}}
    length = int.from_bytes(weights[:8], "little")
    names = json.loads(weights[8 : 8 + length]).keys() - {"__metadata__"}
    index = {"weight_map": dict.fromkeys(sorted(names), "a.safetensors")}
    transformers = {"config.json": config, "preprocessor_config.json": pixels}
    return [
        {"open_clip_config.json": {"model_cfg": model, "preprocess_cfg": mean_std}},
        transformers,
        {**transformers, "model.safetensors.index.json": index},
    ]


def calibration(folder: Path) -> bytes:
    rows, targets = drawn(200, seed=0), Targets(error=0.2)
    first = np.arange(200) < 60
    found = fit(rows.take(first), rows.take(~first), targets=targets)
    setup = {
        "model": "pocket", "fingerprint": "a" * 64, "precision": "float32", "method": "d-tpt",
        "lambda": 1e5, "learning_rate": None, "template": "a photo of a {}.", "context": None,
        "classes": [f"class {k}" for k in range(10)], "views": {"count": 4}, "tuning": {"steps": 1},
    }  # fmt: skip
    numbers = {"images": 200, "temperature_images": 60, "clusters": 200, "temperature_clusters": 60}
    made = Calibration(
        setup=Setup.model_validate(setup),
        provenance=Provenance(
            dataset="drawn", fingerprint="b" * 64, run="c" * 64, seed=0, **numbers
        ),
        targets=targets,
        fit=found,
        guarantees=guarantees(found, targets, sets="lac", tested=rows.take(~first), noun="images"),
        assumption=assumption(rows, noun="images"),
        before_and_after=temperature_effect(rows.take(~first), found.temperature),
    )
    made.save(folder / "calibration.json")
    return (folder / "calibration.json").read_bytes()


def run_store(folder: Path) -> bytes:
    """Two methods, 24 samples, one of which failed."""
    samples = [
        SampleRecord(f"{number:02d}", number % 3, image_key=f"key {number}") for number in range(24)
    ]
    methods = (MethodSpec(name="tpt"), MethodSpec.model_validate({"name": "d-tpt", "lambda": 5}))
    dataset = DatasetSpec(
        name="dtd", fingerprint=fingerprint(CLASSES, samples), classes=3, samples=24, whole=24,
        methods=methods, views={"count": 4},
    )  # fmt: skip
    spec = RunSpec(
        model=ModelSpec(name="tiny", fingerprint="b" * 64), datasets=(dataset,), seeds=(0,),
        template="a photo of a {}.", tuning={"steps": 1}, code_version="1",
    )  # fmt: skip
    generator = np.random.default_rng(0)
    with Store(folder / "run.sqlite", spec) as store:
        store.begin_session({"environment": {"threads": 1}})
        store.write_classes("dtd", CLASSES)
        store.write_notes("dtd", ("a note",))
        store.write_lambdas({spec.cells()[1]: SelectedLambda(5.0, 32)})
        for number, record in enumerate(samples):
            if number == 7:
                store.write_failure("dtd", record, cells=spec.cells(), reason="damaged")
            else:
                row = _row(generator.dirichlet([1, 1, 1]), number % 3)
                store.write("dtd", record, rows=dict.fromkeys(spec.cells(), row))
    return (folder / "run.sqlite").read_bytes()


def _row(p: np.ndarray, label: int) -> Row:
    best = int(p.argmax())
    return Row(
        prediction=best,
        confidence=float(p[best]),
        entropy=float(-(p * np.log(p)).sum()),
        p_label=float(p[label]),
        sum_squares=float((p * p).sum()),
        top5=json.dumps([[best, float(p[best])]]),
        zero_shot_prediction=best,
        zero_shot_confidence=float(p[best]),
        log_probabilities=pack(np.log(p)),
    )


@cache
def bomb() -> bytes:
    """A compressed gigabyte."""
    packer = zlib.compressobj(9)
    block = bytes(1 << 24)
    return b"".join(packer.compress(block) for _ in range(64)) + packer.flush()
