"""Models that open_clip and transformers hold in memory: same features, same fingerprint."""

import json
from types import SimpleNamespace

import pytest
import torch
from test_open_clip_folders import PREPROCESS, build, model_cfg
from test_open_clip_folders import differences as open_clip_differences
from test_open_clip_folders import save as save_open_clip
from test_transformers_folders import differences as transformers_differences
from test_transformers_folders import tiny_clip
from tiny_checkpoints import PREPROCESSOR, TEXTS, padded_ids

import dtpt
from dtpt.clip.preprocess import Preprocess
from dtpt.clip.tokenizer import Tokenizer
from dtpt.errors import CheckpointError

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:timm"),
]
LIMIT = 1e-5


@pytest.mark.parametrize("tower", ["vit", "resnet"])
@pytest.mark.parametrize("quick_gelu", [True, False])
@pytest.mark.parametrize("custom_text", [True, False])
def test_open_clip_model_is_the_one_of_its_folder(
    open_clip, tmp_path, pixels, tower, quick_gelu, custom_text
):
    cfg = model_cfg(tower, quick_gelu)
    theirs = build(open_clip, cfg, custom_text)
    save_open_clip(theirs, cfg, tmp_path)
    ours = dtpt.from_open_clip(theirs, PREPROCESS)
    assert max(open_clip_differences(theirs, ours, pixels).values()) < LIMIT
    assert ours.fingerprint == dtpt.load_model(f"local-dir:{tmp_path}").fingerprint
    assert ours.notes == ()


def test_preprocessing_comes_from_the_model_or_the_transform(open_clip):
    theirs = build(open_clip, model_cfg("vit"))
    assumed = dtpt.from_open_clip(theirs)
    assert assumed.preprocessing == Preprocess.openai(32)
    assert "preprocess_cfg" in assumed.notes[0]
    transform = open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(size=32, **PREPROCESS), is_train=False
    )
    read = dtpt.from_open_clip(theirs, transform)
    open_clip.factory.set_model_preprocess_cfg(theirs, {"size": 32, **PREPROCESS})
    carried = dtpt.from_open_clip(theirs)
    assert read.fingerprint == carried.fingerprint
    assert carried.preprocessing.mean == (0.5, 0.4, 0.3)
    assert dtpt.from_open_clip(theirs, carried.preprocessing).fingerprint == read.fingerprint


def test_weights_are_copied_and_the_model_is_left_as_it_was(open_clip, pixels):
    theirs = build(open_clip, model_cfg("resnet")).train()
    theirs.visual.bn1.eval()
    ours = dtpt.from_open_clip(theirs)
    assert theirs.training
    assert theirs.visual.bn2.training
    assert not theirs.visual.bn1.training
    before = ours.encode_image(pixels)
    with torch.no_grad():
        theirs.visual.conv1.weight.zero_()
    assert torch.equal(ours.encode_image(pixels), before)


def test_bias_of_a_sigmoid_loss_cancels_in_a_softmax(open_clip, tmp_path, pixels):
    cfg = {**model_cfg("vit"), "init_logit_bias": -10.0}
    theirs = build(open_clip, cfg)
    save_open_clip(theirs, cfg, tmp_path)
    assert theirs.logit_bias is not None
    ours = dtpt.from_open_clip(theirs, PREPROCESS)
    assert ours.fingerprint == dtpt.load_model(f"local-dir:{tmp_path}").fingerprint
    with torch.inference_mode():
        logits, _ = theirs.get_logits(pixels, padded_ids(ours, TEXTS))
    features = ours.encode_image(pixels) @ ours.encode_text(TEXTS).T  # (N, T)
    expected = (ours.logit_scale * features).softmax(dim=1)
    assert torch.allclose(logits.softmax(dim=1), expected, atol=1e-5)


def test_half_precision_model_is_taken_exactly(open_clip, tmp_path):
    cfg = model_cfg("vit")
    theirs = build(open_clip, cfg).bfloat16()
    save_open_clip(theirs, cfg, tmp_path)
    ours = dtpt.from_open_clip(theirs, PREPROCESS)
    assert ours.dtype == torch.float32
    assert ours.fingerprint == dtpt.load_model(f"local-dir:{tmp_path}").fingerprint


def test_variant_that_weights_do_not_show_is_refused_by_its_features(open_clip):
    theirs = build(open_clip, model_cfg("vit"))
    theirs.text_pool_type = "first"
    with pytest.raises(CheckpointError, match="text"):
        dtpt.from_open_clip(theirs)


def test_foreign_tower_is_refused(open_clip):
    with pytest.raises(CheckpointError, match="visual"):
        dtpt.from_open_clip(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("act", ["quick_gelu", "gelu"])
def test_transformers_model_is_the_one_of_its_folder(transformers, tmp_path, pixels, act):
    theirs = tiny_clip(transformers, act)
    images = transformers.CLIPImageProcessor(**PREPROCESSOR)
    theirs.save_pretrained(tmp_path)
    images.save_pretrained(tmp_path)
    ours = dtpt.from_transformers(theirs, images)
    assert max(transformers_differences(theirs, ours, pixels).values()) < LIMIT
    assert ours.fingerprint == dtpt.load_model(f"local-dir:{tmp_path}").fingerprint
    assert ours.preprocessing.std == (0.2, 0.3, 0.4)
    alone = dtpt.from_transformers(theirs)
    assert alone.preprocessing == Preprocess.openai(32)
    assert "processor" in alone.notes[0]


def test_processor_brings_the_tokenizer_too(transformers, tmp_path):
    vocab, merges = clip_vocabulary()
    tokenizer = transformers.CLIPTokenizer(vocab=vocab, merges=merges)
    processor = transformers.CLIPProcessor(
        transformers.CLIPImageProcessor(**PREPROCESSOR), tokenizer
    )
    theirs = tiny_clip(transformers)
    theirs.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").is_file()
    ours = dtpt.from_transformers(theirs, processor)
    assert ours.fingerprint == dtpt.load_model(f"local-dir:{tmp_path}").fingerprint


def clip_vocabulary():
    tree = json.loads(Tokenizer.clip_default().to_json())
    return tree["model"]["vocab"], [tuple(pair) for pair in tree["model"]["merges"]]


def test_other_transformers_model_is_refused():
    theirs = torch.nn.Linear(2, 2)
    theirs.get_text_features = theirs.forward
    theirs.config = SimpleNamespace(to_dict=lambda: {"model_type": "blip"})
    with pytest.raises(CheckpointError, match="blip"):
        dtpt.from_transformers(theirs)
