"""Runs become cells, or a refusal: nothing is averaged that does not belong together."""

from pathlib import Path

import numpy as np
import pytest
from handmade import FIVE, TUNING, dataset, random_says, write_run

from dtpt.errors import DtptError, ReportError, RunError
from dtpt.metrics import CalibrationReport
from dtpt.report import Variant, load_runs, write_report
from dtpt.report.compare import compare
from dtpt.report.facts import MEAN, Number, Resampling, mean_facts

ONE = (("tpt", None),)
TPT = Variant("tpt")


def accuracies(condition) -> dict[str, Number]:
    """The mean accuracy of every variant by method."""
    means = mean_facts(condition, "fine-grained", resampling=Resampling(resamples=20))
    return {v.method: means.numbers[v, "accuracy", MEAN] for v in means.variants}


def says(cell, index):
    return index % 2 == 0, 0.6 + 0.05 * index


def test_cells_hold_all_rows_and_metrics_from_them(tmp_path: Path) -> None:
    run = write_run(tmp_path / "a", [dataset(samples=5, methods=ONE)], says, seeds=(0, 3))
    (condition,) = load_runs([run]).conditions
    assert [str(seed) for seed in condition.seeds] == ["0", "3"]
    cell = condition.cells["pets", TPT, (3, None)]
    assert cell.column("confidence").tolist() == pytest.approx([0.6, 0.65, 0.7, 0.75, 0.8])
    assert cell.column("correct").tolist() == [True, False, True, False, True]
    expected = CalibrationReport.of(cell.predictions)
    for name in ("accuracy", "ece", "aece", "mce", "aurc"):
        assert cell.metric(name) == pytest.approx(getattr(expected, name), abs=1e-15)


def test_shards_of_one_run_are_joined_by_sample(tmp_path: Path) -> None:
    entry = dataset(samples=30, methods=ONE)
    for part in range(3):
        write_run(
            tmp_path / "shards",
            [entry],
            says_bounded,
            file=f"shard-{part + 1}-of-3.sqlite",
            done=lambda cell, index, part=part: "ok" if index % 3 == part else "",
        )
    whole = write_run(tmp_path / "whole", [entry], says_bounded)
    joined = load_runs([tmp_path / "shards"]).conditions[0].cells["pets", TPT, (0, None)]
    alone = load_runs([whole]).conditions[0].cells["pets", TPT, (0, None)]
    assert joined.is_finished
    assert joined.column("confidence").tolist() == alone.column("confidence").tolist()
    twice = load_runs([tmp_path / "shards", whole]).conditions[0].cells["pets", TPT, (0, None)]
    assert twice.effective == 30


def says_bounded(cell, index):
    return index % 4 != 0, 0.5 + 0.01 * index


def test_contradicting_copies_are_refused(tmp_path: Path) -> None:
    entry = dataset(samples=3, methods=ONE)
    first = write_run(tmp_path / "a", [entry], says)
    second = write_run(tmp_path / "b", [entry], lambda cell, index: (True, 0.99))
    with pytest.raises(RunError, match="'image-00000'"):
        load_runs([first, second])


def test_empty_folder_missing_run_and_run_without_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no run"):
        load_runs([tmp_path])
    with pytest.raises(ReportError, match="dtpt eval"):
        load_runs([])
    empty = write_run(tmp_path / "empty", [dataset()], says, done=lambda cell, index: "")
    with pytest.raises(ReportError, match="dtpt eval"):
        load_runs([empty])
    (tmp_path / "junk.sqlite").write_bytes(b"this is no database at all, not even nearly one")
    with pytest.raises(DtptError, match=r"junk\.sqlite"):
        load_runs([tmp_path / "junk.sqlite"])


def test_one_name_for_two_class_lists_is_refused(tmp_path: Path) -> None:
    first = write_run(tmp_path / "a", [dataset(methods=ONE)], says)
    second = write_run(tmp_path / "b", [dataset(methods=ONE)], says, classes=("cat", "dog", "fish"))
    with pytest.raises(ReportError, match="class lists"):
        load_runs([first, second])


def test_different_parts_of_a_set_do_not_share_a_table(tmp_path: Path) -> None:
    first = write_run(
        tmp_path / "a", [dataset(samples=3, limit=3, whole=4, methods=ONE)], says, seeds=(0,)
    )
    second = write_run(tmp_path / "b", [dataset(samples=4, methods=ONE)], says, seeds=(1,))
    with pytest.raises(ReportError, match="samples"):
        load_runs([first, second])


def test_different_models_are_never_in_one_mean(tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / name, [dataset(methods=ONE)], lambda c, i, r=right: (r, 0.9), model=name
        )
        for name, right in (("good", True), ("bad", False))
    ]
    conditions = load_runs(runs).conditions
    assert [condition.model for condition in conditions] == ["good", "bad"]
    assert [accuracies(condition)["tpt"].value for condition in conditions] == [1.0, 0.0]


def test_seeds_from_two_runs_meet_in_one_cell_row(tmp_path: Path) -> None:
    runs = [
        write_run(
            tmp_path / str(s), [dataset(methods=ONE)], lambda c, i: (c.seed == 1, 0.5), seeds=(s,)
        )
        for s in (0, 1)
    ]
    (condition,) = load_runs(runs).conditions
    number = accuracies(condition)["tpt"]
    assert number.value == 0.5
    assert number.spread == pytest.approx(np.std([0, 1], ddof=1))


def test_half_finished_cells_are_named_and_enter_no_mean(tmp_path: Path) -> None:
    sets = [dataset("pets", samples=6), dataset("cars", samples=6)]
    run = write_run(
        tmp_path / "half",
        sets,
        random_says(),
        done=lambda cell, i: (
            "ok" if cell.dataset == "pets" or cell.method != "tpt" or i < 2 else ""
        ),
    )
    loaded = load_runs([run])
    assert any("cars, tpt, seed 0: 2 of 6" in text for text in loaded.notes)
    numbers = accuracies(loaded.conditions[0])
    assert numbers["tpt"].value is None
    assert "cars seed 0: 2 of 6" in numbers["tpt"].missing
    assert numbers["d-tpt"].value is not None
    assert not numbers["tpt"].significant


def test_seeds_that_lack_a_cell_are_left_out_and_named(tmp_path: Path) -> None:
    sets = [dataset("pets", samples=6), dataset("cars", samples=6)]
    run = write_run(
        tmp_path / "one",
        sets,
        random_says(),
        seeds=(0, 1, 2),
        done=lambda cell, i: (
            "" if (cell.dataset, cell.method, cell.seed) == ("cars", "tpt", 1) and i > 2 else "ok"
        ),
    )
    more = write_run(tmp_path / "two", [dataset("pets", samples=6, methods=ONE)], says, seeds=(3,))
    with load_runs([run]) as loaded:
        (condition,) = loaded.conditions
    assert [seed.seed for seed in condition.seeds] == [0, 2]
    assert condition.lacking == (("cars", Variant("tpt"), (1, None)),)
    assert all(number.value is not None for number in accuracies(condition).values())
    assert len(condition.finished("pets", Variant("d-tpt", 1e5))) == 2
    (unfinished,) = [text for text in loaded.notes if "cars, tpt, seed 1" in text]
    assert "3 of 6" in unfinished
    (left_out,) = [text for text in loaded.notes if "seeds 0, 2" in text]
    assert "seed 1 " in left_out
    with load_runs([run, more]) as loaded:  # under seed 3 only one method was planned
        (condition,) = loaded.conditions
    assert [seed.seed for seed in condition.seeds] == [0, 2]
    assert {repeat.seed for _, _, repeat in condition.lacking} == {1, 3}
    assert len(condition.lacking) == 1 + 9


def test_a_comparison_says_what_it_left_out(tmp_path: Path) -> None:
    run = write_run(
        tmp_path,
        [dataset(samples=6, methods=FIVE[:2])],
        random_says(),
        seeds=(0, 1),
        done=lambda cell, i: "" if (cell.method, cell.seed, i) == ("tpt", 1, 5) else "ok",
    )
    found = compare(run, resamples=50)
    assert {row["n"] for row in found.rows} == {6}
    assert any("seed 1" in text for text in found.notes)
    assert found.document()["notes"] == list(found.notes)


def test_failed_images_are_counted_and_marked(tmp_path: Path) -> None:
    run = write_run(
        tmp_path / "failed",
        [dataset(samples=4, methods=ONE)],
        lambda cell, index: (True, 0.8),
        done=lambda cell, index: "failed" if index == 1 else "ok",
    )
    loaded = load_runs([run])
    assert any("truncated file" in text for text in loaded.notes)
    cell = loaded.conditions[0].cells["pets", TPT, (0, None)]
    assert (cell.is_finished, cell.effective, cell.failed) == (True, 3, 1)
    number = accuracies(loaded.conditions[0])["tpt"]
    assert number.value == 1.0
    assert "1 images" in number.note


def test_a_damaged_store_is_called_damaged(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [dataset(methods=ONE)], says)
    store = run / "run.sqlite"
    store.write_bytes(store.read_bytes()[:5000])
    with pytest.raises(RunError, match=r"run\.sqlite is damaged"):
        load_runs([run])


def test_notes_of_data_sets_name_them_and_appear_once(tmp_path: Path) -> None:
    text = "2 folders hold no images."
    for number in (0, 1):
        write_run(
            tmp_path / str(number),
            [dataset(methods=ONE)],
            says,
            seeds=(number,),
            notes={"pets": [text], "": ["The activation was guessed."]},
        )
    found = load_runs([tmp_path / "0", tmp_path / "1"]).notes
    assert list(found).count(f"pets: {text}") == 1
    assert "The activation was guessed." in found


def test_different_threads_and_machines_are_noted(tmp_path: Path) -> None:
    for number, device in ((1, "cpu"), (2, "cuda (A6000)")):
        environment = {"threads": number, "device": device, "torch": "2"}
        write_run(
            tmp_path / str(number),
            [dataset(methods=ONE)],
            says,
            seeds=(number,),
            session={"environment": environment},
        )
    found = load_runs([tmp_path / "1", tmp_path / "2"]).notes
    assert any("threads 1 and 2" in text for text in found)
    assert any("device cpu and cuda (A6000)" in text for text in found)
    alone = load_runs([tmp_path / "1"]).notes
    assert not any("threads" in text or "device" in text for text in alone)


def test_mixture_of_processors_in_a_cluster_is_noted(tmp_path: Path) -> None:
    machines = [{"host": f"h{k}", "processor": name} for k, name in enumerate(("Xeon", "EPYC"))]
    session = {"environment": {"threads": 1}, "nodes": machines}
    write_run(tmp_path, [dataset(methods=ONE)], says, session=session)
    found = load_runs([tmp_path]).notes
    assert any("processor EPYC and Xeon" in text for text in found)


def test_parts_of_sets_are_noted_beside_every_number(tmp_path: Path) -> None:
    entry = dataset(samples=4, whole=1692, methods=(("tpt", None), ("d-tpt", 1e5)))
    made = write_report([write_run(tmp_path / "run", [entry], says)], tmp_path / "out")
    size = "4 of 1,692 images"
    assert any(size in text for text in made.report.loaded.notes)
    assert all(size in table.caption for table in made.report.tables)
    assert all(size in figure.caption for figure in made.report.figures)
    assert size in made.card.read_text("utf-8")
    assert made.page.read_text("utf-8").count(size) >= 5


def test_runs_of_different_precision_share_no_table(tmp_path: Path) -> None:
    entry = dataset(methods=ONE)
    exact = write_run(tmp_path / "a", [entry], says)
    half = write_run(tmp_path / "b", [dataset(methods=(("vte", None),))], says, precision="float16")
    titles = [condition.title for condition in load_runs([exact, half]).conditions]
    assert titles == ["tiny, “a photo of a {}.”", "tiny, “a photo of a {}.”, float16"]


def test_headings_name_unusual_settings(tmp_path: Path) -> None:
    entry = dataset(methods=ONE)
    usual = write_run(tmp_path / "a", [entry], says)
    twice = write_run(tmp_path / "b", [entry], says, tuning={**TUNING, "steps": 2, "rho": 0.3})
    first, second = load_runs([usual, twice]).conditions
    assert first.title == "tiny, “a photo of a {}.”"
    assert second.title == "tiny, “a photo of a {}.”, steps 2, rho 0.3"


def test_a_table_of_prompts_holds_one_setting_alone(tmp_path: Path) -> None:
    entry = dataset(methods=ONE)
    runs = [
        write_run(
            tmp_path / f"{steps}-{index}",
            [entry],
            says,
            template=template,
            tuning={**TUNING, "steps": steps},
        )
        for steps in (1, 2)
        for index, template in enumerate(("a photo of a {}.", "art of a {}."))
    ]
    tables = write_report(runs, tmp_path / "out").report.prompt_tables
    assert [len(table.rows) for table in tables] == [2, 2]
    assert len({table.key for table in tables}) == 2


def test_figures_of_several_settings_name_theirs(tmp_path: Path) -> None:
    entry = dataset(samples=12, methods=(("zero-shot", None), ("tpt", None)))
    runs = [
        write_run(tmp_path / str(n), [entry], random_says(), tuning={**TUNING, "steps": n})
        for n in (1, 2)
    ]
    alone, both = (write_report(few, tmp_path / "out").report for few in (runs[:1], runs))
    figures = both.all_figures
    assert len({figure.title for figure in figures}) == len(figures)
    assert any(figure.title.endswith("“a photo of a {}.”, steps 2)") for figure in figures)
    assert not any("photo" in figure.title for figure in alone.all_figures)


def test_sets_that_share_a_title_are_noted(tmp_path: Path) -> None:
    sets = [dataset(f"folder:/{kind}/test", methods=ONE) for kind in ("birds", "cars")]
    notes = load_runs([write_run(tmp_path, sets, says)]).notes
    assert any("folder:/birds/test, folder:/cars/test" in text for text in notes)


def test_a_store_is_scanned_once(tmp_path: Path, monkeypatch) -> None:
    """Rows, counts and failures are read once per report."""
    from dtpt.runs.reading import Run

    sets = [dataset(name, samples=12, methods=ONE) for name in ("pets", "cars")]
    run = write_run(tmp_path / "run", sets, random_says())
    calls: list[str] = []
    for name in ("columns", "counts", "failures", "rows_of"):
        own = getattr(Run, name)

        def counted(self, *words, own=own, name=name):
            calls.append(name)
            return own(self, *words)

        monkeypatch.setattr(Run, name, counted)
    write_report([run], tmp_path / "out")
    assert sorted(calls) == ["columns", "counts", "failures"]
