"""Prompt tuning as the peers run it: the yardstick of the engine's exactness and speed.

Every class prompt is padded to the full context (77 tokens for CLIP), runs forward and backward
through autograd, torch's AdamW makes a step, and everything runs forward again. Nothing is shared
between classes, images or methods. Used by tests and `dtpt bench tuning`, never for results.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.methods.base import ResolvedMethod
from dtpt.methods.tpt import ENTROPY_LOSSES, select_confident
from dtpt.methods.zero_shot import class_logits
from dtpt.prompts import PromptSet
from dtpt.tuning.settings import TuningSettings


def plain_text_features(model: Clip, prompts: PromptSet, context: Tensor) -> Tensor:
    """Normalised text features (C, D) from sequences padded to the model's whole context."""
    embeddings, end = _padded_embeddings(model, prompts, context)
    tower, length = model.text, embeddings.shape[1]
    mask = torch.ones(length, length, dtype=torch.bool, device=context.device).tril()
    states = tower.transformer(embeddings + tower.positional_embedding, mask)  # (C, L, W)
    rows = torch.arange(len(end), device=context.device)
    features = tower.ln_final(states)[rows, end] @ tower.text_projection
    return F.normalize(features, dim=-1)


def plain_probabilities(
    model: Clip,
    prompts: PromptSet,
    *,
    views: Tensor,
    method: ResolvedMethod,
    settings: TuningSettings,
) -> Tensor:
    """Tune one image's context the long way and predict its original view: (N, D) -> (C,)."""
    context = prompts.context.clone().requires_grad_()
    optimiser = torch.optim.AdamW(
        [context], lr=settings.learning_rate, weight_decay=settings.weight_decay
    )
    selected = None
    for _ in range(settings.steps if method.method.tunes else 0):
        text = plain_text_features(model, prompts, context)
        logits = class_logits(views, text, logit_scale=model.logit_scale)  # (N, C)
        if selected is None:
            selected = select_confident(logits.detach(), settings.rho)
        loss = ENTROPY_LOSSES[settings.entropy](logits[selected])
        if method.method.regulariser is not None and method.lambda_ is not None:
            loss = loss + method.lambda_ * method.method.regulariser(text)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        text = plain_text_features(model, prompts, context)
        return torch.softmax(class_logits(views[0], text, logit_scale=model.logit_scale), dim=-1)


def _padded_embeddings(model: Clip, prompts: PromptSet, context: Tensor) -> tuple[Tensor, Tensor]:
    """(C, L, W) embeddings with the context in place, and (C,) positions of the end tokens."""
    count, length = len(prompts.names), model.config.text.context_length
    tokens = torch.zeros(count, length, dtype=torch.long, device=context.device)
    end = torch.zeros(count, dtype=torch.long, device=context.device)
    start = len(prompts.prefix)
    tokens[:, :start] = prompts.prefix
    for group in prompts.groups:
        size = group.tokens.shape[1]
        tokens[group.classes, start : start + size] = group.tokens
        end[group.classes] = start + group.end
    embeddings = model.text.embed(tokens).detach()
    rows = torch.arange(count, device=context.device)
    positions = [torch.full_like(end, place) for place in prompts.tuned_prefix]
    positions += [end + place for place in prompts.tuned_suffix]
    for row, position in enumerate(positions):
        embeddings = embeddings.index_put((rows, position), context[row].expand(count, -1))
    return embeddings, end
