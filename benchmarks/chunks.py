"""How much a machine would gain by chunk sizes of its own.

The sizes in which class tokens and views go through the towers decide the last bits of a row, so
they are fixed, and rows of different machines can be compared. This measures the price: the time of
one image with the fixed sizes and with others, in turns, on a model with random weights.
"""

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from benchmarks import measuring
from benchmarks.measuring import Listed, Repeat, Row, Threads
from dtpt.clip.model import Clip, views_per_batch
from dtpt.clip.prompts import PromptSet
from dtpt.tuning.encoder import CHUNK_TOKENS, Linearisation, PromptEncoder


def chunks(
    *,
    architecture: str = "ViT-B-16",
    classes: int = 397,
    tokens: Listed = "256,1024,4096",
    views: Listed = "4,16,64",
    threads: Threads = None,
    repeat: Repeat = 3,
) -> Row:
    """Compare the fixed sizes of chunks of class tokens, and of batches of views, with others."""
    sizes = measuring.whole_numbers(tokens, "--tokens")
    batches = measuring.whole_numbers(views, "--views")
    with measuring.torch_threads(threads):
        machine, clip = measuring.machine(), measuring.random_model(architecture)
        prompts = PromptSet.build(clip, measuring.class_names(classes))
        of_text = {size: _text_work(clip, prompts, size=size) for size in (*sizes, CHUNK_TOKENS)}
        rows = _rows("class tokens", of_text, used=CHUNK_TOKENS, repeat=repeat)
        used = views_per_batch(clip.visual)
        pixels = torch.zeros(max(*batches, used), 3, *[clip.preprocessing.size] * 2)
        of_views = {size: partial(_encode, clip, pixels, size=size) for size in (*batches, used)}
        rows += _rows("views", of_views, used=used, repeat=repeat)
    return {"rows": rows, "classes": classes, "repeat": repeat, "machine": machine}


def _text_work(clip: Clip, prompts: PromptSet, *, size: int) -> Callable[[], None]:
    encoder = PromptEncoder(clip, prompts, chunk_tokens=size)
    return partial(_tune, encoder, encoder.linearise(encoder.origin))


def _tune(encoder: PromptEncoder, start: Linearisation) -> None:
    """Pass back and forward once over all classes."""
    start.pullback(start.features)
    encoder.encode(encoder.origin)


def _encode(clip: Clip, pixels: Tensor, *, size: int) -> None:
    for start in range(0, len(pixels), size):
        clip.encode_image(pixels[start : start + size])


def _rows(
    what: str, work: Mapping[int, Callable[[], None]], *, used: int, repeat: int
) -> list[Row]:
    times = measuring.in_turns({str(size): one for size, one in work.items()}, repeat)
    best = min(variant.best for variant in times.values())
    return [
        {
            "what": what,
            "size": int(size),
            "fixed": int(size) == used,
            "seconds": variant.best,
            "above_best": variant.best / best - 1,
        }
        for size, variant in times.items()
    ]
