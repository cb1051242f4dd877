"""What a machine lacks is sent once, whole and unchanged; what it has is recognised."""

from dataclasses import replace
from pathlib import Path

import pytest
from tiny_runs import TINY_OPTIONS, draw_pictures, tiny_clip

pytest.importorskip("ray")

from dtpt.runs.cluster.actors import Porter
from dtpt.runs.cluster.goods import (
    goods_of,
    lacking,
    moved_order,
    moved_sample,
    received_folder,
    unpack,
)
from dtpt.runs.cluster.opening import plain_order

from dtpt.clip.loading import load_model
from dtpt.clip.loading.save import save_model
from dtpt.errors import ImageError
from dtpt.runs import EvalOptions
from dtpt.runs.cluster import goods as goods_module
from dtpt.runs.evaluation import prepare


@pytest.fixture
def options(tmp_path):
    save_model(tiny_clip(), tmp_path / "tiny", tokenizer_json=None)
    draw_pictures(tmp_path / "pictures", per_class=3)
    return EvalOptions(
        **{
            **TINY_OPTIONS,
            "model": f"local-dir:{tmp_path / 'tiny'}",
            "dataset": (f"folder:{tmp_path / 'pictures'}",),
            "output": tmp_path / "run",
        }
    )


@pytest.fixture
def setup(options):
    return prepare(options)


def probes(goods):
    return {number: one.probe for number, one in goods.items()}


def send(goods, porter):
    """Do what the driver does for one thing; return the folder and the number of pieces."""
    folder, files = porter.expect(goods.parcel)
    pieces = list(goods.parcel.pieces(files))
    for piece in pieces:
        porter.take(goods.parcel, goods.read(piece))
    return folder, len(pieces)


def test_nothing_is_lacking_where_the_paths_lead_to_the_same_files(setup, options):
    goods = goods_of(setup, options.model)
    assert set(goods) == {-1, 0}
    assert Porter().lacks(probes(goods)) == {}


def test_missing_and_changed_files_are_noticed(setup, options, tmp_path):
    goods = goods_of(setup, options.model)
    (tmp_path / "tiny" / "model.safetensors").unlink()
    picture = tmp_path / "pictures" / "cat" / "001.png"
    picture.write_bytes(picture.read_bytes() + b" ")
    reasons = Porter().lacks(probes(goods))
    assert "No such file" in reasons[-1]
    assert "is another one there" in reasons[0]


@pytest.mark.parametrize("piece_bytes", [700, 5000, 1 << 20])
def test_what_was_sent_is_the_same_model_and_the_same_pictures(
    setup, options, monkeypatch, tmp_path, piece_bytes
):
    monkeypatch.setattr(goods_module, "PIECE_BYTES", piece_bytes)
    goods = goods_of(setup, options.model)
    porter = Porter()
    received = {number: send(one, porter)[0] for number, one in goods.items()}
    keys = [sample.image.key() for sample in setup.tasks[0].dataset.samples]
    (tmp_path / "tiny").rename(tmp_path / "gone")
    (tmp_path / "pictures").rename(tmp_path / "gone too")
    (tmp_path / "tiny").mkdir()  # the driver still has it; here it is empty
    order = moved_order(plain_order(setup, options), received)
    assert load_model(order.model).fingerprint == setup.model.fingerprint
    moved = [moved_sample(sample, received[0]) for sample in setup.tasks[0].dataset.samples]
    assert [sample.image.key() for sample in moved] == keys
    assert not list(received_folder("").rglob("*.part"))


def test_what_is_there_is_not_sent_again(setup, options):
    goods = goods_of(setup, options.model)[0]
    porter = Porter()
    assert send(goods, porter)[1] == 1
    assert send(goods, porter)[1] == 0
    folder, _ = porter.expect(goods.parcel)
    (Path(folder) / goods.parcel.names[4]).unlink()
    assert porter.expect(goods.parcel)[1] == [4]


def test_changed_picture_makes_another_parcel(setup, options, tmp_path):
    before = goods_of(setup, options.model)[0].parcel
    picture = tmp_path / "pictures" / "cat" / "001.png"
    picture.write_bytes(picture.read_bytes() + b" ")
    assert goods_of(setup, options.model)[0].parcel.digest != before.digest


def test_damaged_piece_is_refused(setup, options):
    goods = goods_of(setup, options.model)[0]
    (piece,) = goods.parcel.pieces(range(9))
    content = goods.read(piece)
    with pytest.raises(ImageError, match="damaged"):
        unpack(goods.parcel, replace(content, data=content.data[:-1] + b"x"))
    assert lacking(goods.parcel) == list(range(9))


def test_empty_files_travel_too(setup, options, tmp_path):
    (tmp_path / "pictures" / "cat" / "001.png").write_bytes(b"")
    goods = goods_of(setup, options.model)[0]
    send(goods, Porter())
    assert lacking(goods.parcel) == []


def test_embedded_model_and_drawn_pictures_are_not_files(tmp_path):
    options = EvalOptions(model="pocket", dataset=("openmoji/objects",), output=tmp_path, limit=20)
    goods = goods_of(prepare(options), "pocket")
    assert set(goods) == {0}
    assert goods[0].parcel is None
    assert Porter().lacks(probes(goods)) == {}
