"""Several prompts per class: features, identity in specs and calibrations, refusals."""

import json
import shlex

import pytest
import torch
import torch.nn.functional as F

import dtpt
from dtpt.cli.main import call
from dtpt.clip.ensembles import (
    checked_descriptions,
    class_prompts,
    descriptions_label,
    is_ensemble,
    prompt_label,
    read_templates,
)
from dtpt.commands import _prompt
from dtpt.errors import MethodError, PromptError

CLASSES = ["cat", "red_fox"]
TWO = "a photo of a {}.\na {} in the snow."
WORDS = {"cat": ["a cat that sleeps", "whiskers"], "red fox": ["a fox"], "extra": ["unused"]}


@pytest.fixture(scope="module")
def model():
    return dtpt.load_model("pocket", device="cpu")


def mean_of(model, texts):
    return F.normalize(model.encode_text(texts).mean(dim=0), dim=-1)


def test_features_are_normalised_means_of_unit_features(model):
    classifier = dtpt.Classifier(model, CLASSES, method="zero-shot", template=TWO)
    features = classifier.predictor.tuner.initial_text_features
    for row, name in enumerate(["cat", "red fox"]):
        expected = mean_of(model, [f"a photo of a {name}.", f"a {name} in the snow."])
        torch.testing.assert_close(features[row], expected, rtol=0, atol=1e-6)
    one = dtpt.Classifier(model, CLASSES, method="zero-shot")
    assert not torch.equal(features, one.predictor.tuner.initial_text_features)


def test_descriptions_are_read_by_class_name(model):
    made = dtpt.Classifier(model, CLASSES, method="vte", descriptions=WORDS)
    features = made.predictor.tuner.initial_text_features
    torch.testing.assert_close(features[0], mean_of(model, WORDS["cat"]), rtol=0, atol=1e-6)
    torch.testing.assert_close(features[1], mean_of(model, ["a fox"]), rtol=0, atol=1e-6)
    assert made.setup.template == descriptions_label(checked_descriptions(WORDS))
    other = dtpt.Classifier(model, CLASSES, method="vte", descriptions={**WORDS, "cat": ["a cat"]})
    assert made.setup.template != other.setup.template


@pytest.mark.parametrize("given", [{"template": TWO}, {"descriptions": WORDS}])
def test_methods_that_tune_the_prompt_are_refused(model, given):
    for name in ("tpt", "d-tpt"):
        with pytest.raises(MethodError, match="several"):
            dtpt.Classifier(model, CLASSES, method=name, **given)
    for name in ("zero-shot", "mean-views", "vte", "zero", "tps"):
        made = dtpt.Classifier(model, CLASSES, method=name, views=4, **given)
        assert made.predictor.duplicates == ()


@pytest.mark.parametrize("given", [{"template": TWO}, {"descriptions": WORDS}])
def test_saved_classifier_is_the_same(model, tmp_path, given):
    made = dtpt.Classifier(model, CLASSES, method="zero-shot", **given)
    made.save(tmp_path)
    again = dtpt.Classifier.load(tmp_path)
    assert again.setup == made.setup
    first, second = (c.predictor.tuner.initial_text_features for c in (made, again))
    assert torch.equal(first, second)


@pytest.mark.parametrize(
    "wrong",
    [
        {"template": "a {}.\nno name"},
        {"template": "\n".join(["a {}."] * 2 + [f"{k} {{}}" for k in range(1000)])},
        {"descriptions": {"cat": ["x"]}},
        {"descriptions": {"cat": [], "red_fox": ["x"]}},
        {"descriptions": {"cat": [3], "red_fox": ["x"]}},
        {"descriptions": ["cat"]},
        {"descriptions": {}},
    ],
)
def test_wrong_templates_and_descriptions_are_refused(model, wrong):
    with pytest.raises(PromptError):
        dtpt.Classifier(model, CLASSES, method="zero-shot", **wrong)


def test_published_templates_are_openais(open_clip):
    from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES

    ours = read_templates("imagenet-80").splitlines()
    assert ours == [template("{}") for template in OPENAI_IMAGENET_TEMPLATES]


def test_label_and_command_stand_for_the_templates(tmp_path):
    (tmp_path / "two.txt").write_text(f"\n{TWO}\n\n")
    assert read_templates(str(tmp_path / "two.txt")) == TWO
    assert (is_ensemble(TWO), is_ensemble("a {}.\n")) == (True, False)
    assert prompt_label(TWO) == "a photo of a {}. and 1 more"
    assert _prompt(read_templates("imagenet-80")) == {"templates": "imagenet-80"}
    assert _prompt("a {}.") == {"template": "a {}."}
    assert "descriptions" in _prompt(descriptions_label(WORDS))
    assert class_prompts(["a_b"], "x {}") == [["x a b"]]
    with pytest.raises(PromptError):
        read_templates(str(tmp_path / "none.txt"))


def test_command_line_takes_templates_and_descriptions(tmp_path, model, capsys):
    from PIL import Image

    image, words = tmp_path / "x.png", tmp_path / "words.json"
    Image.new("RGB", (70, 70), (200, 30, 30)).save(image)
    words.write_text(json.dumps(WORDS))
    answers = {}
    for flag in (f"--templates imagenet-80 --descriptions {words}", f"--descriptions {words}",
                 "--templates imagenet-80", ""):  # fmt: skip
        line = f"predict {image} --classes cat,red_fox --method zero-shot --json {flag}"
        try:
            call(shlex.split(line))
            answers[flag] = json.loads(capsys.readouterr().out)
        except dtpt.DtptError as error:
            answers[flag] = error
    both, described, several, plain = answers.values()
    assert isinstance(both, dtpt.DtptError)
    probabilities = [json.dumps(answer) for answer in (described, several, plain)]
    assert len(set(probabilities)) == 3
