"""Clusters of stored samples: as the data set gave them, exact copies joined, over all stores."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_store import make_rows, make_spec, new_store

from dtpt.errors import RunError
from dtpt.report.load import load_runs
from dtpt.runs import open_run
from dtpt.runs.reading import join_clusters
from dtpt.runs.results import predictions_of
from dtpt.runs.store import SampleRecord


def write(path, *samples, methods=None):
    spec = make_spec()
    with new_store(path / "run.sqlite", spec) as store:
        for sample in samples:
            rows = make_rows(spec, label=sample.label).items()
            chosen = {c: row for c, row in rows if methods is None or c.method in methods}
            store.write("dtd", sample, rows=chosen)
    return path


def sample(name, *, cluster="", key=None):
    return SampleRecord(name, 1, cluster=cluster, image_key=key)


FOUR = (
    sample("a", cluster="x", key="1"),
    sample("b", cluster="x", key="2"),
    sample("c", cluster="y", key="2"),  # a copy of b
    sample("d", key="4"),
)


def test_copies_are_one_cluster_in_columns_rows_and_predictions(tmp_path):
    with open_run(write(tmp_path, *FOUR)) as run:
        assert run.clusters("dtd") == {"a": "x", "b": "x", "c": "x", "d": "d"}
        columns = run.columns("sample", "cluster")
        assert columns.keys() == set(run.cells)
        for cell, table in columns.items():
            assert table["cluster"].tolist() == ["x", "x", "x", "d"]
            assert run.rows_of(cell).cluster.tolist() == ["x", "x", "x", "d"]
            clusters = predictions_of(run.rows_of(cell).table).clusters
            assert clusters is not None
            assert clusters.tolist() == ["x", "x", "x", "d"]


records = st.builds(
    lambda name, cluster, key: sample(name, cluster=cluster, key=key),
    st.sampled_from("abcdef"),
    st.sampled_from("uvwxyz"),
    st.sampled_from(["1", "2", "3", "4", None]),
)


@given(st.lists(records, max_size=12))
def test_clusters_are_the_connected_components(samples):
    joined = join_clusters(samples)
    assert joined.keys() == {each.id for each in samples}
    linked = {each.id: {each.id} for each in samples}
    for _ in samples:  # by brute force: the closure of "shares cluster, image or sample"
        for one in samples:
            for two in samples:
                same_image = one.image_key is not None and one.image_key == two.image_key
                if same_image or one.cluster == two.cluster or one.id == two.id:
                    union = linked[one.id] | linked[two.id]
                    for name in union:
                        linked[name] = union
    for one in joined:
        for two in joined:
            assert (joined[one] == joined[two]) == (two in linked[one])


def test_copies_in_different_shards_are_one_cluster_in_a_report(tmp_path):
    spec = make_spec()
    for number, part in enumerate((FOUR[:2], FOUR[2:]), start=1):
        with new_store(tmp_path / f"shard-{number}-of-2.sqlite", spec) as store:
            for each in part:
                store.write("dtd", each, rows=make_rows(spec))
    with load_runs([tmp_path]) as loaded:
        for cell in loaded.conditions[0].cells.values():
            assert cell.column("cluster").tolist() == ["x", "x", "x", "d"]


def test_stores_with_other_images_under_the_same_ids_are_not_paired(tmp_path):
    first = write(tmp_path / "a", *FOUR, methods=["tpt"])
    second = write(tmp_path / "b", *FOUR[:3], sample("d", key="other"), methods=["d-tpt"])
    with pytest.raises(RunError) as caught:
        load_runs([first, second])
    text = str(caught.value)
    assert all(word in text for word in (f"{first}/run.sqlite", f"{second}/run.sqlite", "'d'"))


def test_an_image_that_one_store_could_not_read_contradicts_nothing(tmp_path):
    stores = []
    for name, key in (("a", "4"), ("b", None), ("c", "5")):
        stores.append(write(tmp_path / name, *FOUR[:3], sample("d", key=key)))
    load_runs(stores[:2]).__exit__()
    load_runs(stores[1:]).__exit__()
    with pytest.raises(RunError):
        load_runs([stores[1], stores[0], stores[2]])


def test_another_label_of_a_sample_is_named(tmp_path):
    first = write(tmp_path / "a", *FOUR)
    second = write(tmp_path / "b", *FOUR[:2], replace(FOUR[2], label=2))
    with pytest.raises(RunError, match="1 and 2"):
        load_runs([first, second])
