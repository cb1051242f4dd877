"""Write the averaged weights of a run as the package's embedded model.

`python -m training.export` reads the checkpoint of a run and writes `model.safetensors` in half
precision, `dtpt_config.json` and `tokenizer.json`, which `load_model("pocket")` opens.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip
from training.artwork import WORK
from training.model import EMBEDDING_STD, InTraining, new_model

PACKAGE_FOLDER = Path(__file__).resolve().parents[1] / "src" / "dtpt" / "pocket"
LARGEST = 10_000_000  # bytes, all files together


def averaged_model(run: Path) -> tuple[Clip, int]:
    """Rebuild the averaged model of a run from its checkpoint; also return its step."""
    tokenizer_json = (run / "tokenizer.json").read_bytes()
    model = InTraining(new_model(tokenizer_json, generator=torch.Generator().manual_seed(0)))
    state = torch.load(run / "checkpoint.pt", weights_only=True)
    model.load_state_dict(state["average"])
    return model.folded(), int(state["step"])


def check(model: Clip, folder: Path) -> None:
    """Refuse weights that prompt tuning would misunderstand, and folders that are too large."""
    spread = float(model.require_text().token_embedding.weight.std())
    if not 0.8 * EMBEDDING_STD < spread < 1.2 * EMBEDDING_STD:
        raise ValueError(
            f"token embeddings have standard deviation {spread:.4f}, not {EMBEDDING_STD}"
        )
    size = sum(path.stat().st_size for path in folder.iterdir())
    if size > LARGEST:
        raise ValueError(f"{folder} holds {size} bytes, more than {LARGEST}")


def export(run: Path, folder: Path) -> int:
    """Write the model of a run to a folder and return the step it comes from."""
    model, step = averaged_model(run)
    tokenizer_json = (run / "tokenizer.json").read_bytes()
    save_model(model, folder, tokenizer_json=tokenizer_json, dtype=torch.float16)
    check(model, folder)
    return step


def thinned(log: str, *, every: int = 100) -> list[dict[str, float]]:
    """Keep one line in `every` steps of a run's log.

    A run that was continued from a checkpoint has logged some steps twice; the last time counts.
    """
    entries = [json.loads(line) for line in log.splitlines()]
    by_step = {int(entry["step"]): entry for entry in entries}
    return [entry for step, entry in sorted(by_step.items()) if step % every == 0 or step <= every]


def write_record(run: Path, path: Path) -> None:
    """Write the settings and the thinned log of a run, for the documentation."""
    settings = json.loads((run / "settings.json").read_text())
    lines = ",\n".join(f"  {json.dumps(e)}" for e in thinned((run / "log.jsonl").read_text()))
    path.write_text(f'{{"settings": {json.dumps(settings)},\n "log": [\n{lines}\n]}}\n')


def main() -> None:
    """Export from the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--run", type=Path, default=WORK / "full")
    parser.add_argument("--to", type=Path, default=PACKAGE_FOLDER)
    parser.add_argument("--record", type=Path, help="also write settings and log to this file")
    options = parser.parse_args()
    if options.record:
        write_record(options.run, options.record)
    print(f"exported step {export(options.run, options.to)} to {options.to}")


if __name__ == "__main__":
    main()
