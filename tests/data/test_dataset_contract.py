import os
import pickle
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtpt.data import Dataset, FileRef, ImageRef, Sample, fingerprint
from dtpt.errors import DatasetError, ImageError


def samples(count: int, classes: int = 3) -> tuple[Sample, ...]:
    return tuple(Sample(f"f/{i}.png", i % classes, FileRef(Path(f"{i}.png"))) for i in range(count))


def dataset(count: int = 9) -> Dataset:
    return Dataset(name="toy", classes=("a", "b", "c"), samples=samples(count))


def test_fingerprint_ignores_the_order_of_samples():
    mixed = list(samples(40))
    random.Random(1).shuffle(mixed)
    assert fingerprint(("a", "b", "c"), mixed) == fingerprint(("a", "b", "c"), samples(40))


def test_fingerprint_changes_with_labels_ids_names_and_their_order():
    base = samples(4)
    relabelled = (Sample("f/0.png", 2, base[0].image), *base[1:])
    renamed = (Sample("f/x.png", 0, base[0].image), *base[1:])
    prints = {
        fingerprint(("a", "b", "c"), base),
        fingerprint(("a", "c", "b"), base),
        fingerprint(("a", "b", "d"), base),
        fingerprint(("a", "b", "c"), relabelled),
        fingerprint(("a", "b", "c"), renamed),
        fingerprint(("a", "b", "c"), base[:3]),
    }
    assert len(prints) == 6


def test_a_sample_without_cluster_is_its_own_cluster_and_clusters_are_no_part_of_the_task():
    base = samples(4)
    assert [sample.cluster for sample in base] == [sample.id for sample in base]
    together = tuple(replace(sample, cluster="film 1") for sample in base)
    assert fingerprint(("a", "b", "c"), together) == fingerprint(("a", "b", "c"), base)
    with pytest.raises(DatasetError, match="cluster"):
        Dataset(name="toy", classes=("a",), samples=(replace(base[0], cluster="\ud800"),))


def test_repeated_ids_are_refused_with_the_id():
    twice = (*samples(3), samples(3)[1])
    with pytest.raises(DatasetError, match=r"f/1\.png"):
        Dataset(name="toy", classes=("a", "b", "c"), samples=twice)


@pytest.mark.parametrize("label", [-1, 3])
def test_labels_outside_of_the_classes_are_refused(label: int):
    bad = (Sample("x", label, FileRef(Path("x"))),)
    with pytest.raises(DatasetError, match=str(label)):
        Dataset(name="toy", classes=("a", "b", "c"), samples=bad)


def test_nothing_to_classify_is_refused():
    with pytest.raises(DatasetError, match="no images"):
        Dataset(name="toy", classes=("a",), samples=())
    with pytest.raises(DatasetError, match="no classes"):
        Dataset(name="toy", classes=(), samples=samples(1))


@given(small=st.integers(1, 60), large=st.integers(1, 60))
def test_a_larger_limit_contains_every_smaller_one(small: int, large: int):
    small, large = sorted((small, large))
    whole = dataset(50)
    few, many = whole.limited(small), whole.limited(large)
    assert len(few) == min(small, 50)
    assert {s.id for s in few.samples} <= {s.id for s in many.samples}
    assert [s for s in whole.samples if s in few.samples] == list(few.samples)


def test_a_limit_is_a_task_of_its_own_and_must_be_positive():
    assert dataset(50).limited(10).fingerprint != dataset(50).fingerprint
    assert dataset(50).limited(50).fingerprint == dataset(50).fingerprint
    with pytest.raises(DatasetError, match="0"):
        dataset().limited(0)


def test_file_reference_survives_pickling_and_keys_by_content(tmp_path: Path, put):
    first, second = put(tmp_path / "a.jpg"), put(tmp_path / "b.jpg")
    reference = pickle.loads(pickle.dumps(FileRef(first)))
    assert isinstance(reference, ImageRef)
    assert reference.open().mode == "RGB"
    assert reference.key() == FileRef(second).key()
    second.write_bytes(second.read_bytes() + b"\0")
    assert reference.key() != FileRef(second).key()


def test_stamp_changes_when_the_file_is_touched_or_replaced(tmp_path: Path, put):
    reference = FileRef(put(tmp_path / "a.jpg"))
    before = reference.stamp()
    assert reference.stamp() == before
    status = reference.path.stat()
    os.utime(reference.path, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    touched = reference.stamp()
    with reference.path.open("ab") as stream:
        stream.write(b"0")
    os.utime(reference.path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert len({before, touched, reference.stamp()}) == 3


def test_a_set_is_partial_when_images_of_the_whole_are_known_to_be_missing():
    own = dataset(9)
    assert (own.whole, own.is_partial) == (None, False)
    assert (own.limited(4).whole, own.limited(4).is_partial) == (9, True)
    assert own.limited(4).limited(2).whole == 9
    whole = replace(own, whole=9)
    assert not whole.is_partial
    assert whole.limited(3).is_partial


def test_own_images_are_a_family_of_their_own_with_the_default_protocol():
    assert (dataset().family, dataset().protocol) == ("own", "fine-grained")


def test_absent_file_is_an_image_error_that_names_it(tmp_path: Path):
    reference = FileRef(tmp_path / "gone.jpg")
    for look in (reference.key, reference.stamp):
        with pytest.raises(ImageError, match=r"gone\.jpg"):
            look()
    with pytest.raises(ImageError, match=r"gone\.jpg"):
        reference.open()
