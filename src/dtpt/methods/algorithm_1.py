"""Algorithm 1 of the paper, as it is written: read this first.

Every class prompt is padded to the full context (77 tokens for CLIP), runs forward and backward
through autograd, torch's AdamW makes a step, and everything runs forward again. Nothing is shared
between classes, images or methods, as in all released code. `dtpt.tuning` computes the same numbers
many times faster; tests compare it with this file, and the benchmarks time both.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.errors import MethodError
from dtpt.methods.base import EntropyReading, ResolvedMethod
from dtpt.methods.tpt import ENTROPY_LOSSES, select_confident
from dtpt.methods.zero_shot import class_logits


def algorithm_1(
    model: Clip,
    prompts: PromptSet,
    *,
    views: Tensor,
    method: ResolvedMethod,
    steps: int = 1,
    learning_rate: float = 5e-3,
    weight_decay: float = 0.01,
    rho: float = 0.1,
    entropy: EntropyReading = "of-mean",
) -> Tensor:
    """Tune the context on an image's (N, D) view features, the original first; predict it (C,)."""
    special = method.modifiers or method.read_out or method.method.is_stateful
    if method.method.parameter == "shift" or special:
        raise MethodError(f"{method.name} is not Algorithm 1: a tuned context, one view read out.")
    tau, context = model.logit_scale, prompts.context.clone().requires_grad_()
    optimiser = torch.optim.AdamW([context], lr=learning_rate, weight_decay=weight_decay)
    initial = confident = None
    for _ in range(steps if method.method.tunes else 0):
        # CLIP procedure
        text = text_features(model, prompts, context=context)
        logits = class_logits(views, text, logit_scale=tau)  # (N, C)
        # TPT procedure
        if confident is None or initial is None:
            initial, confident = text.detach(), select_confident(logits.detach(), rho)
        loss = ENTROPY_LOSSES[entropy](logits[confident])
        # D-TPT procedure (or C-TPT's, O-TPT's, ...)
        if method.method.regulariser is not None and method.lambda_ is not None:
            loss = loss + method.lambda_ * method.method.regulariser(text)
        if method.method.anchored is not None and method.lambda_ is not None:
            loss = loss + method.lambda_ * method.method.anchored(text, initial)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        text = text_features(model, prompts, context=context)
        return class_logits(views[0], text, logit_scale=tau).softmax(dim=-1)


def text_features(model: Clip, prompts: PromptSet, *, context: Tensor) -> Tensor:
    """Return normalised text features (C, D) from prompts padded to the model's whole context."""
    tower = model.require_text()
    padded = prompts.padded(tower.context_length, pad_id=model.tokenizer.pad_id)
    rows = torch.arange(len(padded.end), device=context.device)
    words = context.expand(len(rows), -1, -1)  # (C, n, W)
    embeddings = tower.embed(padded.tokens).detach()  # (C, L, W)
    embeddings = embeddings.index_put((rows[:, None], padded.context), words)
    if not tower.is_causal:  # it always runs over whole sequences
        return F.normalize(tower(embeddings, padded.end), dim=-1)
    length = tower.context_length
    mask = torch.ones(length, length, dtype=torch.bool, device=context.device).tril()
    states = tower.transformer(embeddings + tower.positional_embedding, mask)  # (C, L, W)
    return F.normalize(tower.project(states[rows, padded.end]), dim=-1)
