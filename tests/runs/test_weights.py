"""Weights that are found from pictures without their labels (`@auto`)."""


def test_weight_found_from_pictures_does_not_depend_on_limit_or_order(run_tiny, tmp_path):
    run = run_tiny(output=tmp_path / "a", method=("d-tpt@auto=0.8",), cache=False)
    (remark,) = run.remarks(run.datasets[0])
    assert "d-tpt@auto=0.8, seed 0: lambda" in remark
    part = run_tiny(output=tmp_path / "b", method=("d-tpt@auto=0.8",), limit=5, cache=False)
    assert part.remarks(run.datasets[0]) == (remark,)
    known = dict(zip(run.rows().ids, run.rows().confidence, strict=True))
    for name, confidence in zip(part.rows().ids, part.rows().confidence, strict=True):
        assert confidence == known[name]
