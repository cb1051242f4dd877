"""Several prompts per class: templates, or descriptions of each class. No torch on import.

A class's feature is the mean of its prompts' unit features, brought to length 1, as OpenAI made the
classifiers of CLIP's paper. Several templates travel as one text with a template on each line; so
they are part of a run's spec and of its rows as one template is. Descriptions (as in CuPL) travel
as their hash, beside the texts.

No prompt is left whose words could be tuned: methods that tune the prompt are refused.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from dtpt.errors import PromptError, os_error, short_repr
from dtpt.files import parse_json, printable, read_limited

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip

MAX_BYTES = 32 << 20  # CuPL's descriptions of ImageNet's classes have 6 MB
MAX_PROMPTS = 1000  # per class
DESCRIPTIONS = "descriptions sha256:"
Descriptions = Mapping[str, Sequence[str]]


@cache
def named_templates() -> Mapping[str, str]:
    """Return the published lists of templates by name, each as one text."""
    folder = resources.files("dtpt.clip") / "templates"
    files = [file for file in folder.iterdir() if file.name.endswith(".txt")]
    return {f.name.removesuffix(".txt"): _lines(f.read_text("utf-8")) for f in files}


def read_templates(name: str) -> str:
    """Return the templates that a name or a file (one on each line) means, as one text.

    Example:
        >>> len(read_templates("imagenet-80").splitlines())
        80
    """
    if name in named_templates():
        return named_templates()[name]
    templates = _lines(_read(Path(name), what="templates").decode("utf-8", "replace"))
    if not templates:
        known = ", ".join(named_templates())
        raise PromptError(f"{printable(name)} has no template. Known lists: {known}.")
    return templates


def read_descriptions(path: Path) -> dict[str, tuple[str, ...]]:
    """Read a JSON object of class names and lists of sentences, as CuPL's files are."""
    try:
        content = parse_json(_read(path, what="descriptions"))
    except ValueError as error:
        raise PromptError(f"{printable(path)} is not valid JSON: {error}") from None
    return checked_descriptions(content)


def checked_descriptions(content: object) -> dict[str, tuple[str, ...]]:
    if not isinstance(content, Mapping) or not content:
        raise PromptError("Descriptions must map class names to lists of sentences.")
    result = {}
    for name, sentences in content.items():
        texts = [sentences] if isinstance(sentences, str) else sentences
        is_list = isinstance(texts, Sequence) and 0 < len(texts) <= MAX_PROMPTS
        if not is_list or not all(isinstance(text, str) and text.strip() for text in texts):
            given = short_repr(sentences)
            raise PromptError(
                f"The descriptions of {name!r} are {given}, not 1 to {MAX_PROMPTS} sentences."
            )
        result[str(name)] = tuple(texts)
    return result


def descriptions_label(descriptions: Descriptions) -> str:
    """Return the word for descriptions where one prompt has its template."""
    content = {name: list(texts) for name, texts in descriptions.items()}
    text = json.dumps(content, sort_keys=True)
    return DESCRIPTIONS + hashlib.sha256(text.encode()).hexdigest()[:16]


def is_ensemble(template: object) -> bool:
    """Return whether a template means several prompts of each class."""
    return isinstance(template, str) and (
        template.startswith(DESCRIPTIONS) or len(_lines(template).splitlines()) > 1
    )


def prompt_label(template: str) -> str:
    """Return a short text for people.

    Example:
        >>> prompt_label("a photo of a {}."), prompt_label(read_templates("imagenet-80"))
        ('a photo of a {}.', 'imagenet-80')
    """
    if not is_ensemble(template) or template.startswith(DESCRIPTIONS):
        return template
    for name, templates in named_templates().items():
        if templates == _lines(template):
            return name
    lines = _lines(template).splitlines()
    return f"{lines[0]} and {len(lines) - 1} more"


def class_prompts(
    classes: Iterable[str], template: str, *, descriptions: Descriptions | None = None
) -> list[list[str]]:
    r"""Return the prompts of each class.

    Example:
        >>> class_prompts(["red_fox"], "a photo of a {}.\na {} in the snow.")
        [['a photo of a red fox.', 'a red fox in the snow.']]
    """
    names = [name.replace("_", " ") for name in classes]
    if descriptions is not None:
        known = {name.replace("_", " "): texts for name, texts in descriptions.items()}
        missing = [name for name in names if name not in known]
        if missing:
            raise PromptError(
                f"The descriptions lack {len(missing)} classes, such as {missing[0]!r}."
            )
        return [list(known[name]) for name in names]
    templates = _lines(template).splitlines()
    wrong = next((one for one in templates if one.count("{}") != 1), None)
    if wrong is not None or not 0 < len(templates) <= MAX_PROMPTS:
        raise PromptError(
            f"Templates need exactly one {{}} each, and at most {MAX_PROMPTS} are taken; got "
            f"{short_repr(wrong if wrong is not None else template)}."
        )
    return [[one.replace("{}", name) for one in templates] for name in names]


def ensemble_features(model: "Clip", prompts: Sequence[Sequence[str]]) -> "Tensor":
    """Return the unit features (C, D) of classes with several prompts each."""
    import torch
    import torch.nn.functional as F

    means = [model.encode_text(texts).mean(dim=0) for texts in prompts]
    return F.normalize(torch.stack(means), dim=-1)


def _lines(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines() if line.strip())


def _read(path: Path, *, what: str) -> bytes:
    try:
        return read_limited(path, MAX_BYTES)
    except OSError as error:
        message = f"The {what} {printable(path)} cannot be read: {os_error(error)}."
        raise PromptError(message) from None
