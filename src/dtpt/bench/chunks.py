"""`dtpt bench chunks`: how much a machine would gain by chunk sizes of its own.

The sizes in which class tokens and views go through the towers decide the last bits of a row, so
they are fixed, and rows of different machines can be compared. The price is what this measures: the
time of one picture with the fixed sizes and with others, in turns, on a model of any shape with
random weights.
"""

import json as json_format
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dtpt.bench.inputs import class_names
from dtpt.bench.machine import describe_machine, torch_threads
from dtpt.bench.options import Json, Repeat, Threads, whole_numbers
from dtpt.bench.timing import in_turns

if TYPE_CHECKING:
    from torch import Tensor

    from dtpt.clip.model import Clip
    from dtpt.tuning.encoder import Linearisation, PromptEncoder


@dataclass(frozen=True)
class Row:
    """One size.

    Attributes:
        what: "class tokens" of a chunk on the text side, or "views" of a batch.
        size: How many.
        fixed: Whether this is the size that is used.
        seconds: Of one picture: a backward and a forward pass of all classes, or all views.
        above_best: By which share that is above the best size.
    """

    what: str
    size: int
    fixed: bool
    seconds: float
    above_best: float


def bench_chunks(
    *,
    architecture: Annotated[str, Parameter(help="Shape of the model.")] = "ViT-B-16",
    classes: Annotated[int, Parameter(help="Number of classes.")] = 397,
    tokens: Annotated[str, Parameter(help="Sizes of chunks, comma-separated.")] = "256,1024,4096",
    views: Annotated[str, Parameter(help="Sizes of batches, comma-separated.")] = "4,16,64",
    threads: Threads = None,
    repeat: Repeat = 3,
    json: Json = False,
) -> None:
    """Compare the fixed chunk sizes with others."""
    from dtpt.clip.loading.names import architecture as shape
    from dtpt.clip.model import random_clip

    sizes, batches = whole_numbers(tokens, "--tokens"), whole_numbers(views, "--views")
    with torch_threads(threads):
        machine, clip = describe_machine(), random_clip(shape(architecture))
        rows = text_rows(clip, sizes, classes=classes, repeat=repeat)
        rows += image_rows(clip, batches, repeat=repeat)
    if json:
        found = {"rows": [asdict(row) for row in rows], "classes": classes, "repeat": repeat}
        print(json_format.dumps(found | {"machine": asdict(machine)}, indent=1))
        return
    for row in rows:
        mark = "  (used)" if row.fixed else ""
        print(
            f"{row.size:>6} {row.what}  {row.seconds:.3f} s  +{row.above_best:.1%} above best{mark}"
        )


def text_rows(clip: "Clip", sizes: Sequence[int], *, classes: int, repeat: int) -> list[Row]:
    """Measure the text side of one picture for each size of a chunk of class tokens."""
    from dtpt.clip.prompts import PromptSet
    from dtpt.tuning.encoder import CHUNK_TOKENS, PromptEncoder

    prompts = PromptSet.build(clip, class_names(classes))
    ways = {}
    for size in dict.fromkeys([*sizes, CHUNK_TOKENS]):
        encoder = PromptEncoder(clip, prompts, chunk_tokens=size)
        ways[size] = partial(_text_side, encoder, encoder.linearise(encoder.origin))
    return _rows("class tokens", ways, used=CHUNK_TOKENS, repeat=repeat)


def _text_side(encoder: "PromptEncoder", start: "Linearisation") -> None:
    start.pullback(start.features)
    encoder.encode(encoder.origin)


def image_rows(clip: "Clip", sizes: Sequence[int], *, repeat: int) -> list[Row]:
    """Measure the image tower on as many views as the largest batch has, for each size."""
    import torch

    from dtpt.clip.model import views_per_batch

    used, side = views_per_batch(clip.visual), clip.preprocessing.size
    tried = list(dict.fromkeys([*sizes, used]))
    pixels = torch.zeros(max(tried), 3, side, side)
    ways = {size: partial(_image_side, clip, pixels, size=size) for size in tried}
    return _rows("views", ways, used=used, repeat=repeat)


def _image_side(clip: "Clip", pixels: "Tensor", *, size: int) -> None:
    for start in range(0, len(pixels), size):
        clip.encode_image(pixels[start : start + size])


def _rows(
    what: str, ways: Mapping[int, Callable[[], None]], *, used: int, repeat: int
) -> list[Row]:
    times = in_turns({str(size): way for size, way in ways.items()}, repeat)
    best = min(way.best for way in times.values())
    return [
        Row(what, int(size), int(size) == used, way.best, way.best / best - 1)
        for size, way in times.items()
    ]
