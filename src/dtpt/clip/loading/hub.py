"""Downloads from the Hugging Face hub and uploads to it, through its own library. No torch.

`HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and `HF_TOKEN` mean what they mean there.
Only the files that a model needs are fetched, and never a pickle where safetensors exist. Before
the first request, one short connection shows whether the hub can be reached at all; the library
alone would retry for half a minute.
"""

import logging
import os
import queue
import socket
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from dtpt.clip.loading import formats
from dtpt.clip.loading.names import ModelName, catalog
from dtpt.errors import CheckpointError, os_error
from dtpt.files import as_path, printable

if TYPE_CHECKING:
    from dtpt.clip.model import Clip

PROBE_SECONDS = 1.5  # for finding the address and connecting; HF_HUB_ETAG_TIMEOUT replaces it
LISTING_SECONDS = 15  # for the list of a repository's files
CARD = "README.md"
FILES = (formats.OWN_CONFIG, "model.safetensors", "tokenizer.json", CARD)


def fetch(name: ModelName) -> Path:
    """Return the folder with a model's files, downloaded if they are not in the cache yet."""
    reason, repo = why_unreachable(), _repository(name)
    if reason is not None:
        return _from_cache(name, reason=reason)
    from huggingface_hub import hf_hub_download  # fails for an endpoint that is not an address

    get = partial(hf_hub_download, repo, revision=name.revision, library_name="dtpt")
    try:
        with _quiet():
            paths = [get(filename=file) for file in _wanted(name)]
    except CheckpointError:
        raise
    except Exception as error:  # the library's errors differ between its HTTP back ends
        return _from_cache(name, reason=_first_line(error))
    return Path(paths[0]).parent


def cached_folder(name: ModelName) -> Path | None:
    """Return the folder of a model that is completely in the cache, or None; no request."""
    from huggingface_hub import try_to_load_from_cache

    for config in formats.CONFIGS if name.kind == "hub" else (formats.OPEN_CLIP_CONFIG,):
        path = try_to_load_from_cache(_repository(name), config, revision=name.revision)
        if isinstance(path, str) and _is_complete(name, Path(path).parent):
            return Path(path).parent
    return None


def _is_complete(name: ModelName, folder: Path) -> bool:
    """Return whether the weights, and all shards of them, are there."""
    present = {path.name for path in folder.iterdir() if path.exists()}
    published = catalog().get(name.value) if name.kind == "catalog" else None
    weights = published.weights if published else formats.weight_file(present)
    if weights is None or not weights.endswith(".index.json"):
        return weights in present
    try:
        shards = formats.read_json(folder / weights)["weight_map"]
        return set(shards.values()) <= present
    except (CheckpointError, LookupError, TypeError, AttributeError):
        return False


def _repository(name: ModelName) -> str:
    return catalog()[name.value].repo if name.kind == "catalog" else name.value


def _wanted(name: ModelName) -> Sequence[str]:
    """Return the files to download: of a published model known ones, else chosen from the list."""
    from huggingface_hub import HfApi

    if name.kind == "catalog":
        return [formats.OPEN_CLIP_CONFIG, catalog()[name.value].weights]
    # Not list_repo_files: without a network that retries for half a minute.
    api = HfApi(library_name="dtpt")
    info = api.model_info(name.value, revision=name.revision, timeout=LISTING_SECONDS)
    wanted = formats.wanted_files([file.rfilename for file in info.siblings or []])
    if not wanted:
        configs = ", ".join(formats.CONFIGS)
        raise CheckpointError(f"{name} cannot be loaded: it has none of {configs} with weights.")
    return wanted


def _from_cache(name: ModelName, *, reason: str) -> Path:
    """Return the cached folder when the hub cannot be used."""
    from huggingface_hub import constants

    folder = cached_folder(name)
    if folder is not None:
        return folder
    offline = "HF_HUB_OFFLINE=0 " if constants.HF_HUB_OFFLINE else ""
    raise CheckpointError(
        f"{name} is not in the cache {constants.HF_HUB_CACHE} and cannot be downloaded ({reason}). "
        f"To fetch it, with network: {offline}dtpt models fetch {name}"
    )


def why_unreachable() -> str | None:
    """Return why the hub cannot be used, None if its address accepts connections.

    Connects to the endpoint (`HF_ENDPOINT`), or to the proxy that leads there, and closes.
    """
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return "HF_HUB_OFFLINE is set"
    try:
        address = _first_hop(constants.ENDPOINT)
    except ValueError as error:
        raise CheckpointError(f"HF_ENDPOINT {constants.ENDPOINT!r}: {error}.") from error
    given = "HF_HUB_ETAG_TIMEOUT" in os.environ
    seconds = float(constants.HF_HUB_ETAG_TIMEOUT) if given else PROBE_SECONDS
    results: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def connect() -> None:
        try:  # half of the time for each address: where IPv6 fails, IPv4 still gets its turn
            socket.create_connection(address, timeout=seconds / 2).close()
            results.put(None)
        except (OSError, ValueError) as error:
            results.put(os_error(error))

    # A thread, because looking up a name has no time limit; it may outlive its use.
    threading.Thread(target=connect, daemon=True).start()
    try:
        reason = results.get(timeout=seconds)
    except queue.Empty:
        reason = f"no answer within {seconds:g} s"
    return None if reason is None else f"{address[0]}:{address[1]} cannot be reached: {reason}"


def _first_hop(endpoint: str) -> tuple[str, int]:
    """Return host and port that a request to the endpoint connects to first."""
    parts = urlsplit(endpoint)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy and not proxy_bypass(parts.hostname or ""):
        parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
    return parts.hostname or "", parts.port or {"https": 443}.get(parts.scheme, 80)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the hub library's own warnings; our errors contain what matters of them."""
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _first_line(error: Exception) -> str:
    """Return kind and first line of one of the library's errors, which have many."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"


def push_to_hub(
    source: "Clip | str | Path",
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
        CheckpointError: the folder is not one of ours or does not load, or the upload fails.

    Example:
        >>> push_to_hub(model, "org/my-clip", license="mit")  # doctest: +SKIP
        'https://huggingface.co/org/my-clip'
    """
    from dtpt.clip.loading.build import assemble
    from dtpt.clip.loading.read import read_folder
    from dtpt.clip.loading.save import save_model
    from dtpt.clip.model import Clip

    with TemporaryDirectory() as temporary:
        if isinstance(source, Clip):
            model, folder = source, Path(temporary)
            save_model(model, folder)
        else:
            folder = as_path(source, "folder").expanduser()
            if not os.path.isfile(folder / formats.OWN_CONFIG):  # Path.is_file raises for some
                missing = f"{printable(folder)} has no {formats.OWN_CONFIG}"
                raise CheckpointError(f"{missing}. Write the folder with save_model.")
            model = assemble(read_folder(folder), device="cpu")
        card = model_card(model, repo_id, license=license)
        return _upload(folder, repo_id, card=card, private=private, message=message, token=token)


def push_results(folder: Path, repo_id: str, *, token: str | None = None) -> str:
    """Upload the files of a folder as a data set in one commit, and return its address.

    Raises:
        CheckpointError: The upload fails.
    """
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    message = "Publish with dtpt"
    return _upload(folder, repo_id, message=message, token=token, names=names, kind="dataset")


def _upload(
    folder: Path,
    repo_id: str,
    *,
    message: str,
    token: str | None,
    card: str = "",
    private: bool = False,
    names: Sequence[str] = FILES,
    kind: str = "model",
) -> str:
    reason = why_unreachable()
    if reason is not None:
        raise CheckpointError(f"{repo_id} cannot be uploaded: {reason}.")
    from huggingface_hub import CommitOperationAdd, HfApi

    api = HfApi(token=token, library_name="dtpt")
    present = [name for name in names if (folder / name).is_file()]
    try:
        with _quiet():
            address = api.create_repo(repo_id, private=private, exist_ok=True, repo_type=kind)
            changes = [CommitOperationAdd(name, folder / name) for name in present]
            if card and CARD not in present and not api.file_exists(repo_id, CARD):
                changes.append(CommitOperationAdd(CARD, card.encode()))
            api.create_commit(repo_id, changes, commit_message=message, repo_type=kind)
    except Exception as error:  # the library's errors differ between its HTTP back ends
        raise CheckpointError(f"{repo_id} cannot be uploaded ({_first_line(error)}).") from error
    return str(address)


def model_card(model: "Clip", repo_id: str, *, license: str | None = None) -> str:
    """Return the card of a model: what it is, its fingerprint, and how to load it."""
    config, text = model.config, model.config.text
    return (
        resources.files("dtpt.clip")
        .joinpath("model_card.md")
        .read_text("utf-8")
        .format(
            repo_id=repo_id,
            license=f"license: {license}\n" if license else "",
            image_tower=config.vision.kind if config.vision else "other",
            image_size=model.preprocessing.size,
            text_tower=f"{text.layers} layers, {text.context_length} tokens" if text else "none",
            embed_dim=config.embed_dim,
            activation=config.activation,
            weights=sum(weight.numel() for weight in model.parameters()),
            fingerprint=model.fingerprint,
        )
    )
