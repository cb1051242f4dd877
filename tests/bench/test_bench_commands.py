"""The commands of `dtpt bench` on tiny settings: what they print, never how fast they are."""

import json
import re
from importlib.resources import files
from pathlib import Path

import pytest

from dtpt.bench.end_to_end import SETTINGS
from dtpt.bench.options import method_names, whole_numbers
from dtpt.bench.tuning import Case
from dtpt.cli.bench import app
from dtpt.clip.model import VIEWS_PER_BATCH
from dtpt.clip.preprocess import Preprocess
from dtpt.errors import BenchmarkError, UnknownName
from dtpt.methods import PAPER_METHODS
from dtpt.tuning.encoder import CHUNK_TOKENS


@pytest.fixture
def printed(capsys, monkeypatch, tiny_clip):
    """Run a command and return what it prints; every architecture is tiny in this process."""
    monkeypatch.setattr("dtpt.clip.loading.names.architecture", lambda name: tiny_clip.config)
    for module in ("tuning", "end_to_end"):
        monkeypatch.setattr(f"dtpt.bench.{module}.matmul_peak_gflops", lambda: 1000.0)

    def run(*words):
        app([str(word) for word in words], result_action="return_value")
        return capsys.readouterr().out

    return run


def test_views_print_both_times_of_each_size_and_the_machine(printed):
    words = ("views", "--size", "32,130", "--views", 4, "--repeat", 1)
    found = json.loads(printed(*words, "--json"))
    small, large = found["rows"]
    assert (small["size"], small["views"], small["picture"]) == (32, 4, [128, 128])
    assert (large["size"], large["views"], large["picture"]) == (130, 4, [500, 375])
    for row in (small, large):
        assert row["ratio"] == pytest.approx(row["plain_seconds"] / row["seconds"])
        assert row["views_per_second"] == pytest.approx(4 / row["seconds"])
        assert row["plain_views_per_second"] == pytest.approx(4 / row["plain_seconds"])
    assert found["machine"]["threads"] == 1
    assert found["repeat"] == 1
    assert re.search(r"32 pixels of a 128×128 picture: plain .* ms .* ours .* ms", printed(*words))


def test_views_of_64_pixels_are_those_of_the_embedded_model():
    config = json.loads((files("dtpt") / "pocket" / "dtpt_config.json").read_text("utf-8"))
    assert Preprocess.model_validate(config["preprocess"]) == Preprocess.openai(64)


def test_rows_take_the_bytes_that_the_documentation_says(printed):
    found = json.loads(printed("rows", "--json"))["rows"]
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text("utf-8")
    table = re.findall(r"^\| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", text, re.MULTILINE)
    assert len(table) == len(found) == 3
    for line, size in zip(table, found, strict=True):
        classes, *sizes = map(int, line)
        assert size["classes"] == classes
        measured = [size["probabilities"], size["row"], size["row_top5"]]
        assert measured == pytest.approx(sizes, rel=0.03)


TUNING = ("tuning", "--classes", 2, "--repeat", 1, "--threads", 1, "--no-memory")


def test_tuning_prints_both_times_of_each_class_count(printed):
    found = json.loads(printed(*TUNING, "--methods", "zero-shot,d-tpt", "--json"))
    (row,) = found["rows"]
    assert (row["methods"], row["classes"]) == ("zero-shot,d-tpt", 2)
    assert row["ratio"] == pytest.approx(row["plain_seconds"] / row["engine_seconds"])
    assert row["plain_processor_seconds"] > 0
    assert 0 < row["share_of_peak"] < 1
    assert row["share_of_peak"] == pytest.approx(row["engine_gflops"] / max(row["peak_gflops"]))
    assert row["peak_gflops"] == [1000.0, 1000.0]
    assert row["engine_peak_mb"] is None
    assert found["machine"]["processor"]


def test_what_algorithm_1_does_not_cover_has_no_plain_time(printed):
    found = json.loads(printed(*TUNING, "--methods", "tps,d-tps", "--json"))
    (row,) = found["rows"]
    assert row["plain_seconds"] is None
    assert row["ratio"] is None
    assert row["engine_seconds"] > 0
    assert "plain not run" in printed(*TUNING, "--methods", "tps")


def test_the_plain_way_is_skipped_above_its_memory(printed):
    assert "plain not run" in printed(*TUNING, "--plain-memory-gb", 0.01)


@pytest.mark.slow
def test_memory_of_tuning_is_measured_in_other_processes(printed):
    words = ("tuning", "--classes", 16, "--repeat", 1, "--threads", 1, "--json")
    (row,) = json.loads(printed(*words))["rows"]  # the other processes run ViT-B/16's text tower
    assert row["plain_peak_mb"] > row["engine_peak_mb"] > 0


@pytest.mark.parametrize(
    ("methods", "covered"),
    [
        (("d-tpt",), True),
        (PAPER_METHODS, True),
        (("c-tpt", "tps"), False),
        (("d-tpt-static",), False),
        (("tpt+sals",), False),
        (("mean-views",), False),
        (("d-tpt@auto=0.9",), False),
    ],
)
def test_a_set_has_a_plain_way_only_if_algorithm_1_covers_all_of_it(methods, covered):
    assert Case("ViT-B-16", 2, methods).has_plain_way is covered


def test_chunks_compare_the_sizes_in_use_with_others(printed):
    words = ("chunks", "--architecture", "ViT-B-32", "--classes", 2, "--tokens", 8, "--views", 1)
    found = json.loads(printed(*words, "--threads", 1, "--repeat", 1, "--json"))
    rows = {(row["what"], row["size"]): row for row in found["rows"]}
    assert [key for key, row in rows.items() if row["fixed"]] == [
        ("class tokens", CHUNK_TOKENS),
        ("views", VIEWS_PER_BATCH),
    ]
    assert set(rows) > {("class tokens", 8), ("views", 1)}
    assert min(row["above_best"] for row in rows.values()) == 0


def test_end_to_end_prints_ratios_and_shares(printed):
    words = ("end-to-end", "--architecture", "ViT-B-32", "--classes", 2, "--views", 2)
    found = json.loads(printed(*words, "--threads", 1, "--json"))
    assert [row["settings"] for row in found["rows"]] == ["one", "five", "twenty"]
    assert [row["plain_measured"] for row in found["rows"]] == [1, 5, 1]
    for row in found["rows"]:
        assert row["ratio"] == pytest.approx(row["plain_seconds"] / row["seconds"])
        assert set(row["shares"]) == set(row["plain_shares"]) == {"views", "tower", "text"}
        assert sum(row["shares"].values()) == pytest.approx(1)
        assert 0 < row["tower_share_of_peak"] < 1
    assert (found["architecture"], found["machine"]["threads"]) == ("ViT-B-32", 1)


def test_twenty_settings_are_twenty_weights():
    assert len(set(SETTINGS["twenty"])) == 20


def test_runs_encode_each_picture_once(printed):
    words = ("runs", "--images", 1, "--classes", 2, "--views", 2, "--threads", 1)
    found = json.loads(printed(*words, "--json"))
    assert found["encoded_images_first_run"] == 1
    assert found["encoded_images_other_lambda"] == 0
    assert found["ratio"] > 0
    assert found["machine"]["torch"]


def test_sets_of_methods_can_be_joined_with_names():
    assert method_names("five") == PAPER_METHODS
    assert method_names("one, tps,d-tpt") == ("d-tpt", "tps")


@pytest.mark.parametrize("text", ["", "x", "10,", "0", "-1", "3.5"])
def test_class_counts_that_are_none_are_refused(text):
    with pytest.raises(BenchmarkError, match="--classes"):
        whole_numbers(text, "--classes")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("tuning", "--methods", "z-tpt"), UnknownName),
        (("end-to-end", "--settings", "six"), UnknownName),
        (("end-to-end", "--classes", "0"), BenchmarkError),
        (("tuning", "--threads", "0"), BenchmarkError),
        (("views", "--repeat", "0"), BenchmarkError),
    ],
)
def test_wrong_options_are_errors_of_ours(words, error, printed):
    with pytest.raises(error):
        printed(*words)


def test_help_loads_no_torch():
    import subprocess
    import sys

    code = (
        "import sys; from dtpt.cli.bench import app\n"
        "for name in ('tuning', 'views', 'runs', 'end-to-end'):\n"
        "    try: app([name, '--help'])\n"
        "    except SystemExit: pass\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0


def test_pipeline_prints_speed_and_how_busy_the_cores_are(printed, monkeypatch):
    monkeypatch.setattr("dtpt.bench.pipeline.SERIAL_PICTURES", 2)
    words = ("pipeline", "--pictures", 2, "--workers", 0)
    found = json.loads(printed(*words, "--json"))
    assert (found["pictures"], found["replicas"], found["workers"]) == (4, 1, 0)
    assert found["pictures_per_second"] == pytest.approx(4 / found["seconds"])
    serial = 1 / sum(found["stage_seconds"].values())
    assert found["serial_pictures_per_second"] == pytest.approx(serial)
    assert 0 < found["busy_share"] <= 1.1
    assert found["machine"]["cores"] >= 1


@pytest.mark.slow
def test_cluster_prints_the_ceiling_of_its_driver(printed):
    pytest.importorskip("ray")
    found = json.loads(printed("cluster", "--pictures=40", "--actors=1", "--rounds=1", "--json"))
    alone, one = found["rows"]
    assert (alone["actors"], one["actors"]) == (0, 1)
    assert one["rows_per_second"] == pytest.approx(5 * one["pictures_per_second"])
    assert alone["overhead_ms"] == 0
    assert one["processor_ms"] > 0
    assert one["overhead_ms"] == pytest.approx(1000 * (one["seconds"] - alone["seconds"]) / 40)
    assert found["machine"]["cores"] >= 1


def test_sizing_counts_every_table(printed):
    found = json.loads(printed("sizing", "--gflops", "100,1000", "--json"))
    assert [row["table"] for row in found] == [f"table{k}" for k in range(1, 8)]
    by_table = {row["table"]: row for row in found}
    for row in found:
        assert row["hours"]["100"] == pytest.approx(10 * row["hours"]["1000"])
        assert row["hours"]["1000"] == pytest.approx(row["teraflop"] / 3600)
        assert row["image_passes"] > row["pictures"] > 0
    both = by_table["table4"]["image_passes"] + by_table["table5"]["image_passes"]
    assert by_table["table1"]["image_passes"] == both  # the same runs, set by set
