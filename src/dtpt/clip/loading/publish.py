"""Uploading a model to the Hugging Face hub, in our own folder format and with a model card."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dtpt.clip.loading.filenames import OWN_CONFIG
from dtpt.clip.loading.folders import read_folder
from dtpt.clip.loading.load import assemble
from dtpt.clip.loading.reaching import in_one_line, quiet, why_unreachable
from dtpt.clip.loading.save import save_model
from dtpt.clip.model import Clip
from dtpt.errors import CheckpointError
from dtpt.files import as_path, printable

CARD = "README.md"
FILES = (OWN_CONFIG, "model.safetensors", "tokenizer.json", CARD)


def push_to_hub(
    source: Clip | str | Path,
    repo_id: str,
    *,
    private: bool = False,
    license: str | None = None,
    message: str = "Upload with dtpt",
    token: str | None = None,
) -> str:
    """Upload a model in one commit and return its address; `hf-hub:REPO_ID` then loads it.

    A folder is loaded first, so that nothing broken is published. The card is the folder's own
    `README.md`; without one it is generated, unless the repository has a card already.

    Args:
        source: a model, or a folder that `save_model` wrote.
        repo_id: `org/name`; made if it does not exist.
        private: whether a repository that is made now is private.
        license: identifier for the generated card, `mit` for example.
        message: of the commit.
        token: to write with; None takes the one that `hf auth login` stored.

    Raises:
        CheckpointError: the folder is not one of ours or does not load, or the hub refuses.

    Example:
        >>> push_to_hub(model, "org/my-clip", license="mit")  # doctest: +SKIP
        'https://huggingface.co/org/my-clip'
    """
    if isinstance(source, Clip):
        with TemporaryDirectory() as temporary:
            folder = Path(temporary)
            save_model(source, folder)
            card = model_card(source, repo_id, license=license)
            return _upload(
                folder, repo_id, card=card, private=private, message=message, token=token
            )
    folder = as_path(source, "folder").expanduser()
    if not os.path.isfile(folder / OWN_CONFIG):  # unlike Path.is_file, false for any such path
        raise CheckpointError(f"{printable(folder)} has no {OWN_CONFIG}: write it by save_model.")
    model = assemble(read_folder(folder), device="cpu")
    card = model_card(model, repo_id, license=license)
    return _upload(folder, repo_id, card=card, private=private, message=message, token=token)


def model_card(model: Clip, repo_id: str, *, license: str | None = None) -> str:
    """Return the card of a model: what it is, its fingerprint, and how to load it."""
    config, text, size = model.config, model.config.text, model.preprocessing.size
    count = sum(weight.numel() for weight in model.parameters())
    head = "".join(
        f"{line}\n"
        for line in (
            "---",
            "library_name: dtpt",
            "pipeline_tag: zero-shot-image-classification",
            *([f"license: {license}"] if license else []),
            "tags:",
            "- clip",
            "- dtpt",
            "---",
        )
    )
    return f"""{head}
# {repo_id}

A CLIP-like model for `dtpt`, calibrated test-time prompt tuning.

| | |
|---|---|
| image tower | {config.vision.kind if config.vision else "other"}, {size} pixels |
| text tower | {f"{text.layers} layers, {text.context_length} tokens" if text else "none"} |
| joint space | {config.embed_dim} dimensions |
| activation | {config.activation} |
| weights | {count:,} |
| fingerprint | `{model.fingerprint}` |

```python
import dtpt

model = dtpt.load_model("hf-hub:{repo_id}")
classifier = dtpt.Classifier(model, ["cat", "dog"])
```
"""


def _upload(
    folder: Path, repo_id: str, *, card: str, private: bool, message: str, token: str | None
) -> str:
    from huggingface_hub import HfApi

    reason = why_unreachable()
    if reason is not None:
        raise CheckpointError(f"{repo_id} cannot be uploaded: {reason}.")
    api = HfApi(token=token, library_name="dtpt")
    try:
        with quiet():
            address = api.create_repo(repo_id, private=private, exist_ok=True)
            changes = _changes(folder, card=None if api.file_exists(repo_id, CARD) else card)
            api.create_commit(repo_id, changes, commit_message=message)
    except Exception as error:  # the library's errors differ between its HTTP back ends
        raise CheckpointError(f"{repo_id} cannot be uploaded ({in_one_line(error)}).") from error
    return str(address)


def _changes(folder: Path, *, card: str | None) -> list[Any]:
    """Return what the commit adds: our files, and the generated card where there is none."""
    from huggingface_hub import CommitOperationAdd

    present = [name for name in FILES if (folder / name).is_file()]
    changes = [CommitOperationAdd(name, folder / name) for name in present]
    if card is not None and CARD not in present:
        changes.append(CommitOperationAdd(CARD, card.encode()))
    return changes
