"""The model in training: the package's own towers, their loss, and the average that is exported."""

from __future__ import annotations

import copy
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dtpt.clip.config import ClipConfig, SmallResNetConfig, TextConfig
from dtpt.clip.model import Clip, initialise
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.resnet import BasicBlock
from dtpt.clip.tokenizer import Tokenizer

CONTEXT_LENGTH = 32
EMBEDDING_STD = 0.015  # CLIP's scale of token embeddings, which prompt tuning's step size refers to
FIRST_SCALE, MAX_SCALE = 20.0, 100.0
TEXT_FRACTION = 0.3  # of the loss: how much finding the image of a caption counts


def pocket_config(vocab_size: int) -> ClipConfig:
    """Return the shape of `pocket`: about 3 M parameters, 39 M multiplications per image."""
    return ClipConfig(
        embed_dim=256,
        activation="gelu",
        vision=SmallResNetConfig(
            image_size=64, stem_width=16, widths=(32, 80, 192), layers=(1, 2, 2)
        ),
        text=TextConfig(
            context_length=CONTEXT_LENGTH,
            vocab_size=vocab_size,
            width=128,
            layers=4,
            heads=4,
            mlp_width=512,
        ),
    )


class InTraining(nn.Module):
    """A model with a batch norm behind the image tower, which speeds learning up.

    It centres the image features, that otherwise all point the same way at the start. Being linear,
    it is folded into the tower's projection on export.
    """

    def __init__(self, clip: Clip) -> None:
        super().__init__()
        self.clip = clip
        self.norm = nn.BatchNorm1d(clip.config.embed_dim)

    def image_features(self, images: Tensor) -> Tensor:
        """uint8 (B, 3, S, S) -> (B, D) unit vectors."""
        pixels = normalised(images, self.clip.preprocessing)
        return F.normalize(self.norm(self.clip.visual(pixels)), dim=1)

    def text_features(self, tokens: Tensor, ends: Tensor) -> Tensor:
        """(U, L) tokens, (U,) positions of the end tokens -> (U, D) unit vectors."""
        tower = self.clip.require_text()
        return F.normalize(tower(tower.embed(tokens), ends), dim=1)

    @torch.no_grad()
    def folded(self) -> Clip:
        """Return a copy of the model that computes the same without the extra norm."""
        clip = copy.deepcopy(self.clip).eval()
        mean, variance = self.norm.running_mean, self.norm.running_var
        assert mean is not None
        assert variance is not None
        gain = self.norm.weight / (variance + self.norm.eps).sqrt()  # (D,)
        projection = clip.visual.proj
        assert isinstance(projection, nn.Linear)
        projection.weight.mul_(gain[:, None])
        projection.bias.copy_(gain * (projection.bias - mean) + self.norm.bias)
        return clip.requires_grad_(False)


def new_model(tokenizer_json: bytes, *, generator: torch.Generator) -> Clip:
    """Build `pocket` with fresh weights."""
    tokenizer = Tokenizer.from_json(tokenizer_json, context_length=CONTEXT_LENGTH)
    model = Clip(
        pocket_config(tokenizer.vocab_size),
        tokenizer=tokenizer,
        preprocessing=Preprocess.openai(64),
    )
    initialise(model, generator)
    with torch.no_grad():
        model.log_logit_scale.fill_(math.log(FIRST_SCALE))
        blocks = model.require_text().transformer.blocks
        depth = (2 * len(blocks)) ** -0.5
        for block in blocks:  # keep the residual stream small at the start
            block.attn.out_proj.weight.mul_(depth)
            block.mlp.c_proj.weight.mul_(depth)
        for module in model.visual.modules():
            if isinstance(module, BasicBlock):  # every block starts as its shortcut
                module.bn2.weight.zero_()
    hold_embedding_scale(model)
    return model


@torch.no_grad()
def hold_embedding_scale(model: Clip) -> None:
    """Rescale the token embeddings to CLIP's standard deviation."""
    weight = model.require_text().token_embedding.weight
    weight.mul_(EMBEDDING_STD / weight.std())


@torch.no_grad()
def hold_temperature(model: Clip) -> None:
    """Keep the learned scale at or below CLIP's bound."""
    model.log_logit_scale.clamp_(max=math.log(MAX_SCALE))


def normalised(images: Tensor, preprocessing: Preprocess) -> Tensor:
    """uint8 (B, 3, S, S) -> what the image tower takes."""
    mean = torch.tensor(preprocessing.mean).view(1, 3, 1, 1)
    std = torch.tensor(preprocessing.std).view(1, 3, 1, 1)
    return (images.float() / 255 - mean) / std


def concept_loss(
    features: Tensor, prototypes: Tensor, *, labels: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """Cross-entropy of features (B, D) against one vector of every concept (K, D).

    Returns:
        The loss, and the fraction of features whose nearest concept is theirs.
    """
    logits = scale * features @ prototypes.T  # (B, K)
    accuracy = (logits.detach().argmax(1) == labels).float().mean()
    return F.cross_entropy(logits, labels), accuracy


def contrastive_loss(
    images: Tensor, texts: Tensor, *, labels: Tensor, fresh: Tensor, bank: Tensor, scale: Tensor
) -> tuple[Tensor, Tensor]:
    """CLIP's loss against captions of *all* concepts.

    A batch has captions of its own concepts only. For the others the bank holds the text features
    of the last time they were seen, so every image is compared with every concept at the price
    of a small text batch. The other direction compares a caption with the images of the batch,
    several of which may show its concept.

    Args:
        images: (B, D) unit vectors.
        texts: (U, D) unit vectors of the captions of this batch.
        labels: (B,) concept of each image.
        fresh: (U,) concept of each caption; no concept twice.
        bank: (K, D) unit vectors, without gradient.
        scale: Factor of the cosines.

    Returns:
        The loss, and the fraction of images whose nearest concept is theirs.
    """
    prototypes = bank.index_copy(0, fresh, texts)  # (K, D)
    by_image, accuracy = concept_loss(images, prototypes, labels=labels, scale=scale)
    by_text = F.log_softmax(scale * texts @ images.T, dim=1)  # (U, B)
    positive = (fresh[:, None] == labels[None, :]).float()
    text_loss = -(by_text * positive).sum(1).div(positive.sum(1).clamp(min=1)).mean()
    return (1 - TEXT_FRACTION) * by_image + TEXT_FRACTION * text_loss, accuracy


class Average:
    """Exponential moving average of weights and batch-norm statistics: what is exported."""

    def __init__(self, model: nn.Module, *, decay: float) -> None:
        self.decay = decay
        self.model = copy.deepcopy(model).eval()

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        """Take in the weights after `step`; early on the average follows faster."""
        decay = min(self.decay, (1 + step) / (10 + step))
        own = self.model.state_dict()
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                own[name].lerp_(value, 1 - decay)
            else:
                own[name].copy_(value)
