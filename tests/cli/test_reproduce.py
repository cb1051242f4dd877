"""`dtpt reproduce`: plans and costs without data; parts of tables with stand-ins for all of it."""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny_runs import tiny_clip

from dtpt.cli.main import call, make_app
from dtpt.cli.reproduce import ReproduceOptions, reproduce
from dtpt.clip.loading.save import save_model
from dtpt.data import loading
from dtpt.data.catalog import PAPER_SETS, catalog_entry
from dtpt.errors import DatasetError, DtptError, ReportError, UnknownName
from dtpt.metrics import METRICS
from dtpt.report.paper import reproduce as planning
from dtpt.report.paper import targets
from dtpt.report.paper.numbers import paper_data, paper_number
from dtpt.report.paper.plan import zero_shot_counts
from dtpt.report.paper.reproduce import Speed, duration_text, estimate, part_options

IMAGES = {"eurosat": 20, "dtd": 47}


def test_every_table_and_figure_of_the_paper_has_a_plan() -> None:
    names = targets.target_names()
    assert names == tuple([f"table{i}" for i in range(1, 8)] + [f"fig{i}" for i in range(1, 8)])
    table1 = targets.find_target("table1")
    assert [run.model for run in table1.runs] == ["ViT-B-16/openai", "RN50/openai"]
    assert all(len(run.datasets) == 11 and run.seeds == (0, 1, 2) for run in table1.runs)
    folders = [run.name for run in targets.find_target("table3").runs]
    assert len(set(folders)) == len(folders)
    with pytest.raises(UnknownName, match="table1"):
        targets.find_target("table11")


def test_planned_methods_are_all_known() -> None:
    from dtpt.methods import resolve_method

    for name in targets.target_names():
        for run in targets.find_target(name).runs:
            for method in run.methods:
                resolve_method(method)


def test_a_part_of_a_target_can_be_asked_for() -> None:
    table1 = targets.find_target("table1")
    part = targets.narrowed(table1, model="RN50/openai", datasets=("dtd", "eurosat"))
    assert [(run.model, run.datasets) for run in part.runs] == [("RN50/openai", ("dtd", "eurosat"))]
    with pytest.raises(ReportError, match=r"table1.*dtpt eval"):
        targets.narrowed(table1, model="pocket")
    assert targets.narrowed(table1, model="RN50").runs[0].model == "RN50/openai"
    part = targets.narrowed(targets.find_target("table6"), methods=("c-tpt", "zero"))
    assert part.runs[0].methods == ("c-tpt@50", "c-tpt@20", "zero")
    given = ReproduceOptions(method=["c-tpt"], seed=["7"], views="8", device="cpu").given()
    options = part_options(given, part.runs[0], datasets=("imagenet_a",))
    assert (options.method, options.seed, options.views) == (part.runs[0].methods, (7,), 8)
    assert (options.model, options.dataset) == ("ViT-B-16/openai", ("imagenet_a",))


def refuse_to_measure(model: str) -> Speed:
    raise AssertionError(f"{model} is measured")


def test_reproduce_says_at_once_what_is_missing_and_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(planning, "measure_speed", refuse_to_measure)
    monkeypatch.setattr(targets, "cached_folder", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        reproduce("table6", options=ReproduceOptions(data_root=tmp_path))
    assert stopped.value.code == 2
    out = capsys.readouterr().out
    assert "ViT-B-16/openai" in out
    for name, count in (("imagenet_a", "7,500"), ("imagenet_sketch", "50,889")):
        assert f"Missing data: {name}" in out
        assert f"{count} images" in out
    assert str(tmp_path / "imagenet-a") in out
    with pytest.raises(DtptError, match="nowhere"):
        reproduce("table6", options=ReproduceOptions(data_root=tmp_path / "nowhere"))


def test_a_dry_run_estimates_the_cost_after_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    printed_before = []

    def measure(model: str) -> Speed:
        printed_before.append(capsys.readouterr().out)
        return Speed(1.0, 2.0, 0.0)

    monkeypatch.setattr(planning, "measure_speed", measure)
    monkeypatch.setattr(targets, "cached_folder", lambda name: None)
    with pytest.raises(SystemExit) as stopped:
        reproduce("table6", options=ReproduceOptions(data_root=tmp_path, dry_run=True))
    assert stopped.value.code == 2
    assert "Missing data: imagenet_a" in printed_before[0]
    images = 3 * (7500 + 10000 + 30000 + 50889)
    out = capsys.readouterr().out
    assert f"{images:,} images" in out
    assert out.count("about 22 months") == 2  # of the one run, and in all


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "less than 2 minutes"),
        (90 * 60, "about 90 minutes"),
        (3 * 86400, "about 3 days"),
        (100 * 86400, "about 3 months"),
        (20784.4 * 86400, "about 57 years"),
    ],
)
def test_estimates_are_whole_numbers_of_a_fitting_unit(seconds: float, text: str) -> None:
    assert duration_text(seconds) == text


def test_cost_is_images_times_views_and_classes() -> None:
    (run,) = targets.find_target("table6").runs
    found = estimate(run, Speed(view=0.5, encode=0.5, text=0.0))
    assert found.seconds == pytest.approx(64 * found.images)
    by_class = estimate(run, Speed(view=0.0, encode=0.0, text=1.0))
    images = {200: 7500 + 30000, 1000: 10000 + 50889}
    work = 3 * len(run.methods)  # seeds times methods
    assert by_class.seconds == sum(work * count * n for count, n in images.items())


def test_the_papers_numbers_are_read_without_a_model(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "140")  # narrow terminals get wide tables in two pieces
    call(["paper", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"differences", "dominant", "sources", "winners", "checks", "claims"}
    gain = found["differences"]["ece"][4]
    assert (gain["first"], gain["second"], gain["sets"]) == ("d-tpt", "o-tpt", 11)
    assert round(gain["mean"], 2) == -0.61
    call(["paper"])
    out = capsys.readouterr().out
    assert f"{gain['error']:.2f}" in out
    assert out.count("D-TPT − O-TPT") == 11  # three metrics in four blocks, one of them misprinted


def test_a_figure_without_data_has_nothing_to_run(capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("fig4")
    assert "nothing to run" in capsys.readouterr().out


def plant(name: str, root: Path, *, count: int | None = None) -> None:
    """Write a set in its first layout: images of noise and the file that lists them."""
    entry, generator = catalog_entry(name), np.random.default_rng(0)
    place = entry.layouts[0]
    rows = []
    for index in range(IMAGES[name]):
        label = index % len(entry.classes)
        rows.append([f"sub/{index}.png", label, entry.classes[label]])
        path = root / place.folder / place.images / f"sub/{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        if count is None or index < count:
            noise = generator.integers(0, 255, (36, 44, 3), dtype=np.uint8)
            Image.fromarray(noise).save(path)
    split = {"train": [], "val": [], "test": rows}
    (root / place.folder / entry.split).write_text(json.dumps(split))


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Tiny models under the paper's names, and sets of its form that are complete when small."""
    monkeypatch.setenv("DTPT_CONFIG", str(tmp_path / "config"))
    model = tiny_clip()
    save_model(model, tmp_path / "tiny", tokenizer_json=None)
    monkeypatch.setattr("dtpt.clip.loading.names.architecture", lambda _: model.config)
    monkeypatch.setattr(
        loading,
        "catalog_entry",
        lambda name: catalog_entry(name).model_copy(update={"images": IMAGES.get(name, 9999)}),
    )
    for name, count in IMAGES.items():
        monkeypatch.setitem(paper_data()["images"], name, count)
    monkeypatch.setitem(paper_data(), "views", 4)
    monkeypatch.setitem(targets._content()["defaults"], "views", 4)
    monkeypatch.setitem(targets._content()["defaults"], "seed", [0, 1])
    monkeypatch.setattr(planning, "measure_speed", lambda model: Speed(0.001, 0.002, 0.0001))
    monkeypatch.setattr(targets, "cached_folder", lambda name: None)
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def run(stand_ins):
    """Return the exit code of the command."""

    def run_command(*words: str) -> int:
        known = ("--data-root", stand_ins / "data", "--output", stand_ins / "runs")
        known += ("--workers", 1, "--view-workers", 0, "--threads", 1, "--device", "cpu", "--quiet")
        try:
            call(["reproduce", *words, *map(str, known)])
        except SystemExit as stop:
            return stop.code
        return 0

    return run_command


def add_models(folder: Path, *names: str) -> None:
    for name in names:
        call(["models", "add", name, str(folder / "tiny"), "--trust"])


def cells(capsys, metric: str = "ece") -> dict[tuple[str, str, str], dict]:
    return cells_of(json.loads(capsys.readouterr().out), metric)


def cells_of(document, metric: str = "ece") -> dict[tuple[str, str, str], dict]:
    records = [record for record in document["tables"] if record["metric"] == metric]
    return {(r["table"], r["method"], r["column"]): r for r in records}


def test_cell_stands_beside_that_of_the_paper(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai")
    plant("eurosat", stand_ins / "data")
    capsys.readouterr()
    words = ("table4", "--dataset", "eurosat", "--method", "zero-shot,d-tpt")
    assert run(*words, "--json") == 0
    document = json.loads(capsys.readouterr().out)
    record = cells_of(document)["fine-grained", "d-tpt", METRICS["ece"].title]
    expected = paper_number("ViT-B-16/openai", "eurosat", method="d-tpt", metric="ece")
    assert record["paper_value"] == expected.value
    assert record["difference"] == pytest.approx(record["value"] - expected.value)
    gate = {one["column"]: one["text"] for one in document["gate"]}
    found = cells_of(document, "accuracy")
    accuracy = found["fine-grained", "zero-shot", METRICS["accuracy"].title]["value"]
    assert int(gate["right here"]) == round(accuracy / 100 * IMAGES["eurosat"])
    assert gate["difference"].startswith("-3,")  # of 3,407 images, of which the stand-in has 20
    assert run(*words) == 0
    out = capsys.readouterr().out
    assert "Table 4" in out
    assert f"{record['value']:.2f}" in out
    assert f"{expected.value:.2f}" in out
    assert "Missing" not in out


@pytest.mark.cluster_long
def test_cluster_fills_the_same_table(run, stand_ins, capsys) -> None:
    pytest.importorskip("ray")
    add_models(stand_ins, "ViT-B-16/openai")
    plant("eurosat", stand_ins / "data")
    found = []
    for executor in ("local", "ray=local"):
        capsys.readouterr()
        words = ("table4", "--dataset", "eurosat", "--method", "zero-shot,d-tpt", "--json")
        assert run(*words, "--executor", executor) == 0
        found.append(cells(capsys))
        (stand_ins / "runs").rename(stand_ins / executor)
    assert found[0] == found[1]


def test_parts_add_up_and_the_rest_says_what_is_missing(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai")
    plant("eurosat", stand_ins / "data")
    words = ("--partial", "--method", "zero-shot", "--json")
    assert run("table4", "--seed", "0", *words) == 1
    capsys.readouterr()
    plant("dtd", stand_ins / "data")
    assert run("table4", "--dataset", "dtd,eurosat", *words) == 0
    found = cells(capsys)
    for column in ("EuroSAT", "DTD"):
        record = found["fine-grained-ece", "zero-shot", column]
        assert record["paper_value"] is not None, column
    assert run("table1", "--seed", "0", "--partial", "--method", "zero-shot") == 1
    out = capsys.readouterr().out
    assert "dtpt models fetch RN50/openai" in out
    assert "flowers102" in out
    assert "Missing data: dtd" not in out
    assert out.rstrip().splitlines()[-1].startswith("Missing data:")


def test_two_backbones_have_a_table_each(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai", "RN50/openai")
    model = tiny_clip(seed=1)
    save_model(model, stand_ins / "other", tokenizer_json=None)
    call(["models", "add", "RN50/openai", str(stand_ins / "other"), "--trust"])
    plant("eurosat", stand_ins / "data")
    capsys.readouterr()
    assert run("table1", "--dataset", "eurosat", "--method", "zero-shot", "--json") == 0
    values = {key[0]: cell["paper_value"] for key, cell in cells(capsys, "accuracy").items()}
    expected = [
        paper_number(model, "eurosat", method="zero-shot", metric="accuracy").value
        for model in ("ViT-B-16/openai", "RN50/openai")
    ]
    assert [values["c1-fine-grained"], values["c2-fine-grained"]] == expected


def test_other_settings_stand_apart_and_are_not_compared(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai")
    plant("eurosat", stand_ins / "data")
    capsys.readouterr()
    words = ("table4", "--dataset", "eurosat", "--method", "zero-shot", "--json")
    for more, folder in ((("--limit", "5"), "limit=5"), (("--views", "3"), "views=3")):
        assert run(*words, *more) == 0
        document = json.loads(capsys.readouterr().out)
        record = cells_of(document)["fine-grained", "zero-shot", METRICS["ece"].title]
        assert record["value"] is not None
        assert record["paper_value"] is None
        assert document["gate"] == []
        assert (stand_ins / "runs" / "table4" / folder / "report" / "index.html").is_file()


def test_set_that_lacks_images_is_refused_before_any_work(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai")
    plant("dtd", stand_ins / "data")
    plant("eurosat", stand_ins / "data", count=7)
    words = ("table4", "--dataset", "dtd,eurosat", "--method", "zero-shot", "--seed", "0")
    with pytest.raises(DatasetError, match="eurosat"):
        run(*words)
    assert not (stand_ins / "runs").exists()
    capsys.readouterr()
    assert run(*words, "--partial", "--json") == 0
    found = cells(capsys)
    assert found["fine-grained-ece", "zero-shot", "DTD"]["paper_value"] is not None
    assert found["fine-grained-ece", "zero-shot", "EuroSAT"]["paper_value"] is None
    assert (stand_ins / "runs/table4/ViT-B-16-openai/eurosat-partly").is_dir()


def test_nothing_is_run_without_weights_or_on_request(run, stand_ins, capsys) -> None:
    plant("eurosat", stand_ins / "data")
    assert run("table4", "--partial", "--json") == 2
    found = json.loads(capsys.readouterr().out)
    assert "cost" not in found
    assert found["missing"]["models"] == ["ViT-B-16/openai"]
    assert {entry["name"] for entry in found["missing"]["datasets"]} >= {"dtd", "flowers102"}
    add_models(stand_ins, "ViT-B-16/openai")
    capsys.readouterr()
    assert run("table4", "--dataset", "eurosat", "--dry-run", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["cost"]["images"] == 2 * catalog_entry("eurosat").images
    assert not (stand_ins / "runs").exists()


def test_figure_is_analysed(run, stand_ins, capsys) -> None:
    add_models(stand_ins, "ViT-B-16/openai")
    plant("dtd", stand_ins / "data")
    capsys.readouterr()
    assert run("fig2", "--limit", "6", "--json") == 0
    (entry,) = json.loads(capsys.readouterr().out)["datasets"]
    assert (entry["dataset"], entry["images"]) == ("dtd", 6)
    drawn = list((stand_ins / "runs" / "fig2" / "figures").iterdir())
    assert {path.suffix for path in drawn} == {".svg", ".pdf"}
    assert all(p.read_bytes().startswith(b"%PDF") for p in drawn if p.suffix == ".pdf")


def test_all_thirty_zero_shot_accuracies_of_the_paper_are_counts() -> None:
    counts = [count for name in PAPER_SETS for count in zero_shot_counts(name)]
    assert len(counts) == 30
    for count in counts:
        assert count.least <= count.most <= count.least + 5
        for right in (count.least, count.most):
            assert abs(100 * right / count.images - count.printed) <= 0.005 + 1e-9


def test_the_plan_begins_with_data_and_has_the_gate_before_the_table(capsys) -> None:
    call(["reproduce", "--plan", "--data-root", "my data", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["steps"][0].startswith("dtpt datasets fetch dtd")
    gate, table = document["steps"][-2:]
    assert "--method zero-shot" in gate
    assert "--method" not in table
    assert len(document["zero_shot"]) == 30
    for step in document["steps"]:
        words = shlex.split(step)
        assert "my data" in words or words[1] == "models"
        make_app().parse_args(words[1:], exit_on_error=False)


def test_a_model_of_ones_own_gets_the_plan_of_the_first_model() -> None:
    table1 = targets.find_target("table1")
    own = targets.narrowed(targets.with_model(table1, "pocket"), model="pocket")
    assert [(run.model, run.datasets) for run in own.runs] == [("pocket", table1.runs[0].datasets)]
    assert targets.with_model(table1, "RN50") == table1


def test_without_data_or_weights_it_is_said_at_once(capsys, monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(planning, "measure_speed", lambda model: pytest.fail("measured"))
    for model in ("pocket", "ViT-B-16/openai"):
        with pytest.raises(SystemExit) as stop:
            call(["reproduce", "table1", "--model", model, "--data-root", str(tmp_path), "--json"])
        assert stop.value.code == 2
        missing = json.loads(capsys.readouterr().out)["missing"]
        assert len(missing["datasets"]) == 11
        assert bool(missing["models"]) == (model != "pocket")
    with pytest.raises(DtptError):
        call(["reproduce", "table1", "--model", "no-such-model"])
    with pytest.raises(DtptError):
        call(["reproduce"])
