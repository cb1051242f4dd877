"""The token layout of class prompts."""

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from dtpt.clip.prompts import (
    BATCH_TOKENS,
    PromptSet,
    batch_by_length,
    load_context,
    placeholder_template,
)
from dtpt.errors import PromptError


def prompt_tokens(prompts: PromptSet) -> dict[int, list[int]]:
    rows = {}
    for group in prompts.groups:
        for index, tokens, end in zip(group.classes, group.tokens, group.end, strict=True):
            rows[int(index)] = [*prompts.prefix.tolist(), *tokens[: int(end) + 1].tolist()]
    return rows


@pytest.mark.parametrize("template", ["a photo of a {}.", "{} on a table", "my-{}, a kind of {x}"])
def test_layout_is_the_tokenised_prompt_of_every_class(tiny_clip, template):
    names = ["cat", "annual_crop_land", "kite (bird of prey)", "a", "Señor Müller’s 707-320"]
    prompts = PromptSet.build(tiny_clip, names, template=template)
    texts = [template.replace("{}", name.replace("_", " ")) for name in names]
    assert prompt_tokens(prompts) == dict(enumerate(tiny_clip.tokenize(texts)))


def test_the_default_context_is_the_four_words_and_not_the_full_stop(tiny_clip):
    prompts = PromptSet.build(tiny_clip, ["cat", "dog"])
    words = torch.tensor(tiny_clip.tokenizer.encode("a photo of a"))
    assert torch.equal(prompts.context, tiny_clip.text.embed(words))
    assert prompts.tuned_prefix == (1, 2, 3, 4)
    assert prompts.tuned_suffix == ()


def test_words_behind_the_name_are_tuned_and_punctuation_is_not(tiny_clip):
    prompts = PromptSet.build(tiny_clip, ["cat", "big dog"], template="a {}, a type of pet.")
    words = torch.tensor(tiny_clip.tokenizer.encode("a a type of pet"))
    assert torch.equal(prompts.context, tiny_clip.text.embed(words))
    assert prompts.tuned_suffix == (-5, -4, -3, -2)


@pytest.mark.parametrize(
    ("names", "groups"),
    [
        (["missile", "cat", "missile", "cat"], (("missile", "missile"), ("cat", "cat"))),
        (["cat", "dog", "Cat"], (("cat", "Cat"),)),
        (["dog_house", "cat", "dog house"], (("dog_house", "dog house"),)),
        (["cat", " cat"], (("cat", " cat"),)),
        (["cat", "cats"], ()),
    ],
)
def test_names_with_the_same_prompt_are_found_whatever_their_spelling(tiny_clip, names, groups):
    assert PromptSet.build(tiny_clip, names).duplicates == groups


@pytest.mark.parametrize(
    ("classes", "template", "message"),
    [
        ([], "a {}", "empty"),
        (["cat", " "], "a {}", "Class 1"),
        (["cat", "_"], "a {}", "Class 1"),
        (["word " * 80], "a {}", "word word"),
        (["cat"], "a photo", "exactly one"),
        (["cat"], "{} and {}", "exactly one"),
        (["cat"], "{}.", "no word"),
        ("cat", "a {}", "list of names"),
    ],
)
def test_prompts_that_cannot_be_made_are_refused_by_name(tiny_clip, classes, template, message):
    with pytest.raises(PromptError, match=message):
        PromptSet.build(tiny_clip, classes, template=template)


def test_a_context_of_another_shape_is_refused(tiny_clip):
    with pytest.raises(PromptError, match=r"\(3, 48\)"):
        PromptSet.build(tiny_clip, ["cat"], context=torch.zeros(3, 48))
    with pytest.raises(PromptError, match="finite"):
        PromptSet.build(tiny_clip, ["cat"], context=torch.full((4, 48), torch.inf))


@pytest.mark.parametrize("kind", ["coop", "flat", "safetensors"])
def test_coop_checkpoints_give_their_context(tiny_clip, tmp_path, kind):
    context = torch.randn(16, 48)
    path = tmp_path / ("c.safetensors" if kind == "safetensors" else "model.pth.tar-50")
    if kind == "safetensors":
        save_file({"ctx": context}, path)
    elif kind == "coop":
        state = {"ctx": context, "token_prefix": torch.zeros(3, 1, 48)}
        torch.save({"state_dict": state, "epoch": 50, "val_result": None}, path)
    else:
        torch.save({"prompt_learner.ctx": context.half()}, path)
    loaded = load_context(path)
    prompts = PromptSet.build(tiny_clip, ["cat"], template=placeholder_template(16), context=loaded)
    torch.testing.assert_close(prompts.context, context, atol=1e-2, rtol=0)


def test_unsafe_or_unfit_context_files_are_refused(tmp_path):
    class Payload:
        def __reduce__(self):
            return (open, (str(tmp_path / "canary"), "w"))

    torch.save({"ctx": Payload()}, tmp_path / "evil.pt")
    torch.save({"weights": torch.zeros(3)}, tmp_path / "other.pt")
    (tmp_path / "text.pt").write_text("no checkpoint")
    for name in ("pipe.pt", "pipe.safetensors"):
        os.mkfifo(tmp_path / name)  # opening it would wait for a writer
    for name in ("evil.pt", "other.pt", "text.pt", "absent.pt", "pipe.pt", "pipe.safetensors"):
        with pytest.raises(PromptError, match=name) as refusal:
            load_context(tmp_path / name)
        assert str(refusal.value).endswith(".")
        assert "\n" not in str(refusal.value)
    assert not (tmp_path / "canary").exists()


@given(st.lists(st.integers(1, 30), min_size=1, max_size=200))
def test_batches_cover_every_sequence_once_and_never_cost_more_than_one_batch(lengths):
    batches = batch_by_length(lengths)
    assert sorted(i for batch in batches for i in batch) == list(range(len(lengths)))

    def cost(split):
        return sum(BATCH_TOKENS + len(b) * max(lengths[i] for i in b) for b in split)

    assert cost(batches) <= cost([list(range(len(lengths)))])
    by_length = [[i for i, n in enumerate(lengths) if n == m] for m in sorted(set(lengths))]
    assert cost(batches) <= cost(by_length)
