"""Names that the user gave to checkpoints on this machine (`dtpt models add`). Needs no torch.

They are kept in `models.json` in the user's config folder: `$DTPT_CONFIG`, or else `dtpt` in
`$XDG_CONFIG_HOME`, or else `~/.config/dtpt`.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError

from dtpt.clip.config import Activation
from dtpt.clip.loading.documents import read_json
from dtpt.errors import CheckpointError, UnknownName, os_error
from dtpt.files import printable, write_atomically

FORMAT = 1
FILE = "models.json"

Status = Literal["own", "verified", "trusted"]


class AddedModel(BaseModel):
    """A checkpoint with a name of the user's choice.

    Attributes:
        path: file or folder, absolute.
        fingerprint: of the model when it was added; other weights at that path are refused.
        parameters: number of weights.
        activation: as the user gave it, for checkpoints that do not state it.
        status: "own" for a new name; for a name of the catalogue "verified" if the file is the
            published one, "trusted" if only the user says so.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    fingerprint: str
    parameters: PositiveInt
    activation: Activation | None = None
    status: Status = "own"

    @property
    def size_bytes(self) -> int:
        """Return the bytes of the weights in float32: what they take in memory."""
        return 4 * self.parameters


def config_folder() -> Path:
    """Return the folder of the user's own settings; it need not exist."""
    own = os.environ.get("DTPT_CONFIG")
    shared = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(own).expanduser() if own else Path(shared).expanduser() / "dtpt"


def added_models() -> Mapping[str, AddedModel]:
    """Return what the user added, by name.

    Raises:
        CheckpointError: the file that keeps them is damaged.
    """
    path = config_folder() / FILE
    if not os.path.lexists(path):
        return {}
    document = read_json(path)
    try:
        if document.get("format") != FORMAT:
            raise ValueError(f"format {document.get('format')!r} is not {FORMAT}")
        return {name: AddedModel.model_validate(e) for name, e in document["models"].items()}
    except (ValueError, LookupError, AttributeError, ValidationError) as error:
        reason = str(error).partition("\n")[0]
        raise CheckpointError(
            f"{printable(path)}, which keeps your models' names, is damaged: {reason}. "
            "Repair or delete it."
        ) from error


def store_model(name: str, model: AddedModel) -> None:
    """Keep a name, replacing what it meant before."""
    _write({**added_models(), name: model})


def remove_model(name: str) -> None:
    """Forget a name; the checkpoint itself stays where it is.

    Raises:
        UnknownName: no such name was added.
    """
    models = dict(added_models())
    if name not in models:
        raise UnknownName("model", name, models, "It was not added by `dtpt models add`.")
    del models[name]
    _write(models)


def _write(models: Mapping[str, AddedModel]) -> None:
    path = config_folder() / FILE
    entries = {name: model.model_dump(mode="json") for name, model in sorted(models.items())}
    document = {"format": FORMAT, "models": entries}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(document, indent=2) + "\n").encode())
    except OSError as error:
        raise CheckpointError(f"{printable(path)} cannot be written: {os_error(error)}.") from error
