"""Downloads from the Hugging Face hub, through its own library and into its own cache.

`HF_HOME`, `HF_HUB_CACHE`, `HF_HUB_OFFLINE`, `HF_ENDPOINT` and `HF_TOKEN` mean what they mean there.
Only the files that a model needs are fetched, and never a pickle where safetensors exist. Before
anything is asked of the hub, one short connection shows whether it can be reached at all; the
library alone would try for half a minute. Needs no torch.
"""

import json
from collections.abc import Sequence
from pathlib import Path

from dtpt.clip.loading.catalog import catalog
from dtpt.clip.loading.filenames import CONFIGS, OPEN_CLIP_CONFIG, wanted_files, weight_file
from dtpt.clip.loading.names import ModelName
from dtpt.clip.loading.reaching import in_one_line, quiet, why_unreachable
from dtpt.errors import CheckpointError
from dtpt.files import read_limited

LISTING_SECONDS = 15  # how long to wait for the list of a repository's files
MAX_INDEX_BYTES = 64 << 20


def fetch(name: ModelName) -> Path:
    """Return the folder with a model's files, downloaded if they are not in the cache yet.

    Raises:
        CheckpointError: not cached and the hub cannot be reached (the message has the command that
            would fetch it), no such repository, or nothing in it that we can load.
    """
    reason = why_unreachable()
    if reason is not None:
        return _from_cache(name, reason=reason)
    try:
        with quiet():
            repo, files = _repository(name), _wanted(name)
            places = [_download(repo, name.revision, file=file) for file in files]
    except CheckpointError:
        raise
    except Exception as error:  # the library's errors differ between its HTTP back ends
        return _from_cache(name, reason=in_one_line(error))
    return places[0].parent


def cached_folder(name: ModelName) -> Path | None:
    """Return the folder of a model that is completely in the cache, or None; ask nobody."""
    from huggingface_hub import try_to_load_from_cache

    for config in CONFIGS if name.kind == "hub" else (OPEN_CLIP_CONFIG,):
        found = try_to_load_from_cache(_repository(name), config, revision=name.revision)
        if isinstance(found, str) and _complete(name, Path(found).parent):
            return Path(found).parent
    return None


def _complete(name: ModelName, folder: Path) -> bool:
    """Tell whether the weights, and all shards of them, are there."""
    present = {path.name for path in folder.iterdir() if path.exists()}
    weights = catalog()[name.value].weights if name.kind == "catalog" else weight_file(present)
    if weights is None or weights not in present:
        return False
    if not weights.endswith(".index.json"):
        return True
    try:
        places = json.loads(read_limited(folder / weights, MAX_INDEX_BYTES))["weight_map"]
        return set(places.values()) <= present
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def _repository(name: ModelName) -> str:
    return catalog()[name.value].repo if name.kind == "catalog" else name.value


def _listing(repo: str, revision: str | None) -> Sequence[str]:
    from huggingface_hub import HfApi

    # Not list_repo_files: without a network that retries for half a minute.
    info = HfApi(library_name="dtpt").model_info(repo, revision=revision, timeout=LISTING_SECONDS)
    return [file.rfilename for file in info.siblings or []]


def _wanted(name: ModelName) -> Sequence[str]:
    """Return the files to download; a known model's are known, others are chosen from the list."""
    if name.kind == "catalog":
        return [OPEN_CLIP_CONFIG, catalog()[name.value].weights]
    wanted = wanted_files(_listing(name.value, name.revision))
    if not wanted:
        raise CheckpointError(
            f"{name} holds no CLIP that dtpt can load: no {', '.join(CONFIGS)} with weights."
        )
    return wanted


def _download(repo: str, revision: str | None, *, file: str) -> Path:
    from huggingface_hub import hf_hub_download

    return Path(hf_hub_download(repo, file, revision=revision, library_name="dtpt"))


def _from_cache(name: ModelName, *, reason: str) -> Path:
    """Return what the cache holds when the hub does not answer."""
    from huggingface_hub import constants

    folder = cached_folder(name)
    if folder is not None:
        return folder
    offline = "HF_HUB_OFFLINE=0 " if constants.HF_HUB_OFFLINE else ""
    raise CheckpointError(
        f"{name} is not in the cache {constants.HF_HUB_CACHE} and cannot be downloaded ({reason}). "
        f"To fetch it, with network: {offline}dtpt models fetch {name}"
    )
