"""A CLIP of any shape with random weights: for benchmarks and estimates, which need no training."""

import torch

from dtpt.clip.config import ClipConfig
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer


def random_clip(config: ClipConfig, *, seed: int = 0) -> Clip:
    """Return a frozen model with CLIP's vocabulary, OpenAI's preprocessing and random weights.

    Example:
        >>> from dtpt.clip.loading.catalog import architecture
        >>> random_clip(architecture("ViT-B-32")).preprocessing.size
        224
    """
    model = Clip(
        config,
        tokenizer=Tokenizer.clip_default(),
        preprocessing=Preprocess.openai(config.vision.image_size),
        fingerprint=f"random weights, seed {seed}",
    )
    initialise(model, torch.Generator().manual_seed(seed))
    return model.eval().requires_grad_(False)
