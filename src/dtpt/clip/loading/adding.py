"""Giving a checkpoint on this machine a name, after a look at what it holds."""

from pathlib import Path

from dtpt.clip.config import Activation
from dtpt.clip.loading.added import AddedModel, Status, store_model
from dtpt.clip.loading.catalog import architecture, catalog
from dtpt.clip.loading.files import file_digest
from dtpt.clip.loading.load import assemble, read_path
from dtpt.clip.loading.names import check_new_name
from dtpt.errors import CheckpointError
from dtpt.files import printable


def add_model(
    name: str, path: Path, *, trust: bool = False, activation: Activation | None = None
) -> AddedModel:
    """Let `name` mean the checkpoint at `path` from now on.

    The checkpoint is loaded once, so that it is whole and its fingerprint is known. A name of the
    catalogue is kept for the weights it stands for: the published file, told by its sha256, or
    weights of the same shapes for which the user vouches.

    Args:
        name: a new name, or one of the catalogue.
        path: file or folder.
        trust: the user's word that the weights are the ones the catalogue means.
        activation: for checkpoints that do not state it.

    Raises:
        CheckpointError: no such name is possible, the checkpoint does not load, or a name of the
            catalogue is asked for weights that nothing proves to be its own.
    """
    known = check_new_name(name)
    place = Path(path).expanduser().absolute()
    if printable(place) != str(place):
        raise CheckpointError(f"{printable(place)}: this path is not UTF-8. Rename it first.")
    entry = catalog().get(known)
    expected = architecture(entry.architecture) if entry else None
    checkpoint = read_path(place, activation, expected=expected)
    status = _status(known, place, trust=trust)
    model = assemble(checkpoint, device="cpu")
    added = AddedModel(
        path=str(place),
        fingerprint=model.fingerprint,
        parameters=sum(weight.numel() for weight in model.parameters()),
        activation=activation,
        status=status,
    )
    store_model(known, added)
    return added


def _status(name: str, path: Path, *, trust: bool) -> Status:
    entry = catalog().get(name)
    if entry is None:
        return "own"
    if path.is_file() and file_digest(path) == entry.torchscript_sha256:
        return "verified"
    if trust:
        return "trusted"
    raise CheckpointError(
        f"{path} has the shapes of {name}, but nothing proves that the weights are the published "
        "ones (only OpenAI's own .pt file can be told by its hash). Give --trust if you know that "
        "they are, or choose another name."
    )
