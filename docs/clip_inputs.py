"""Make a feature-model folder (docs/feature-models.md) from arrays and an image tower.

    python docs/clip_inputs.py model --text FILE.npy --classes imagenet --prompt "a photo of a {}" \
        --tower TOWER.safetensors OUT
    python docs/clip_inputs.py model --text FILE.npz --tower TOWER.safetensors OUT

FILE.npy holds text features (C, D); --classes names the data set whose class order they have, or a
file with a name in each line. FILE.npz has the arrays `features`, `classes`, `prompt`, `source` and
`licence`. Features need not be normalised. TOWER is a vision-only checkpoint in safetensors, in the
tensor names of transformers, OpenAI or open_clip. The folder is loaded once, as a check.
"""

import argparse
import os
import shutil
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file

import dtpt
from dtpt.clip.loading.features import TEXT_FILE, TOWER_FILE, Parts
from dtpt.data.catalog import NAMED_SETS, catalog_entry


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
    model = parser.add_subparsers(required=True).add_parser("model", help="write a folder")
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
