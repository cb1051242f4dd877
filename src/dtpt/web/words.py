"""What moved in the prompt: each tuned token, its way, and the vocabulary around where it ended."""

import torch
from torch import Tensor

from dtpt.clip.model import Clip
from dtpt.clip.prompts import PromptSet
from dtpt.web.schemas import Word

NEAREST = 3


def moved_words(model: Clip, prompts: PromptSet, *, context: Tensor) -> list[Word]:
    """Describe a tuned context (n, W) token by token.

    Distances are Euclidean, in the space of token embeddings; the length of a token's own vector
    gives the scale. After one step of AdamW every number has moved by about the learning rate, so
    all tokens have come equally far; where they went is what differs.

    Example:
        >>> from dtpt.clip.loading import load_model
        >>> pocket = load_model("pocket", device="cpu")
        >>> prompts = PromptSet.build(pocket, ["cat", "dog"])
        >>> [word.token for word in moved_words(pocket, prompts, context=prompts.context)]
        ['a', 'photo', 'of', 'a']
    """
    table = model.require_text().token_embedding.weight.detach().float().cpu()  # (V, W)
    before, after = prompts.context.float().cpu(), context.float().cpu()  # (n, W)
    start, end = _distances(before, table), _distances(after, table)  # (n, V)
    tokens = _tuned_tokens(prompts)
    start[range(len(tokens)), tokens] = end[range(len(tokens)), tokens] = torch.inf  # itself
    return [
        Word(
            token=model.tokenizer.spell(token),
            moved=float((after[row] - before[row]).norm()),
            length=float(before[row].norm()),
            nearest=[
                (model.tokenizer.spell(other), float(end[row, other]))
                for other in _smallest(end[row], model)
            ],
            towards=[
                model.tokenizer.spell(other)
                for other in _smallest((end[row] - start[row]).nan_to_num(torch.inf), model)
            ],
        )
        for row, token in enumerate(tokens)
    ]


def _distances(points: Tensor, table: Tensor) -> Tensor:
    return torch.cdist(points, table, compute_mode="donot_use_mm_for_euclid_dist")


def _smallest(values: Tensor, model: Clip) -> list[int]:
    """Return the tokens with the smallest values, of those that are whole characters."""
    special = {model.tokenizer.start_id, model.tokenizer.end_id}
    order: list[int] = values.topk(10 * NEAREST, largest=False).indices.tolist()
    legible = [t for t in order if t not in special and "\ufffd" not in model.tokenizer.spell(t)]
    return legible[:NEAREST]


def _tuned_tokens(prompts: PromptSet) -> list[int]:
    """Return the token ids of the template's tuned words, in the order of the context's rows."""
    group = prompts.groups[0]
    end = int(group.end[0])
    in_front = [int(prompts.prefix[place]) for place in prompts.tuned_prefix]
    return in_front + [int(group.tokens[0, end + offset]) for offset in prompts.tuned_suffix]
