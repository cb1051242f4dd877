"""Make the tables of `docs/models.md`: what of open_clip and transformers loads, and why not.

`python docs/model_tables.py` brings the page up to date. It reads the configurations inside the
installed open_clip, which is not imported.
"""

import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from made_parts import brought_up_to_date

from dtpt.clip.config import ClipConfig
from dtpt.clip.loading.formats import TRANSFORMERS_MODELS, parse_transformers
from dtpt.clip.loading.open_clip_configs import parse_open_clip
from dtpt.errors import CheckpointError

PAGE = Path(__file__).with_name("models.md")
TOWERS = {
    "vit": "ours", "resnet": "ours", "siglip_vit": "ours", "open_clip": "open_clip's",
}  # fmt: skip
FAMILIES = ("clip", "metaclip_2", "siglip", "siglip2", "align", "altclip", "blip", "chinese_clip")


def configurations() -> Mapping[str, Mapping[str, Any]]:
    """Return every configuration of the installed open_clip by name; none if it is missing."""
    found = find_spec("open_clip")
    if found is None or not found.submodule_search_locations:
        return {}
    folder = Path(found.submodule_search_locations[0]) / "model_configs"
    return {
        path.stem: json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))
    }


def described(name: str, document: Mapping[str, Any]) -> tuple[ClipConfig | None, str]:
    """Return a configuration's shapes, or none and why it is refused."""
    try:
        return parse_open_clip(document, origin=name).config, ""
    except CheckpointError as error:
        return None, str(error).removeprefix(f"{name}: ").rstrip(".")


def tokenizer_of(document: Mapping[str, Any]) -> str:
    """Return the vocabulary that a text tower needs."""
    return str(document["text_cfg"].get("hf_tokenizer_name") or "CLIP's")


def open_clip_table() -> str:
    """Return a row for each configuration."""
    rows = ["| configuration | loads | image tower | text attends | tokenizer |"]
    rows.append("|" + " --- |" * 5)
    for name, document in configurations().items():
        config, reason = described(name, document)
        if config is None:
            rows.append(f"| {name} | no: {reason} | | | |")
            continue
        tower, extra = TOWERS[config.vision.kind], config.vision.kind == "open_clip"
        attends = "backwards" if config.text.is_causal else "both ways"
        cells = (name, "with `dtpt[towers]`" if extra else "yes", tower, attends)
        rows.append("| " + " | ".join((*cells, tokenizer_of(document))) + " |")
    return "\n".join(rows)


def summary() -> str:
    """Return how many configurations load, in one sentence."""
    configs = [described(*pair)[0] for pair in configurations().items()]
    ours = sum(config is not None and config.vision.kind != "open_clip" for config in configs)
    others = sum(config is not None and config.vision.kind == "open_clip" for config in configs)
    return (
        f"Of the {len(configs)} configurations of open_clip 3.3.0, {ours} load with dtpt alone and "
        f"{others} more with the extra `towers`; {len(configs) - ours - others} are refused."
    )


def transformers_rows() -> Iterator[str]:
    """Yield the rows of transformers' families, by `model_type`."""
    yield "| `model_type` | loads |"
    yield "| --- | --- |"
    for kind in FAMILIES:
        try:
            parse_transformers({"model_type": kind}, origin="config")
            yield f"| `{kind}` | yes |"
        except CheckpointError as error:
            yield f"| `{kind}` | no: {str(error).removeprefix('config: ').rstrip('.')} |"


def up_to_date() -> str:
    """Return the page with every made part drawn anew."""
    tables = {"summary": summary(), "open_clip": open_clip_table()}
    tables["transformers"] = "\n".join(transformers_rows())
    return brought_up_to_date(PAGE.read_text("utf-8"), tables.__getitem__)


if __name__ == "__main__":
    PAGE.write_text(up_to_date(), "utf-8")
    print(
        f"{PAGE.name}: {len(configurations())} configurations, {len(TRANSFORMERS_MODELS)} families"
    )
