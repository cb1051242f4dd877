"""Plug-ins: one that raises, exits or sleeps is left out with its reason, and disturbs nothing."""

import threading

import pytest

from dtpt.errors import MethodError, UnknownName
from dtpt.methods import METHODS, find_method, known_methods, load_plugins, method_names, plugins
from dtpt.methods.plugins import find_plugins

SOUND = """
from dtpt.methods import regularised
METHOD = regularised("x", lambda text: text.square().mean(), lambda_=4.0)
"""
BROKEN = {
    "raises": ("raise RuntimeError('no GPU\\nhere')", "no GPU here"),
    "exits": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "ends": ("class End(BaseException): pass\nraise End('over')", "End: over"),
    "lacks": ("import a_package_that_is_not_there", "a_package_that_is_not_there"),
    "is-empty": ("", "METHOD"),
    "is-a-number": ("METHOD = 3.14", "3.14"),
    "sleeps": ("import time; time.sleep(60)", "0.3 seconds"),
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    """Return a function that installs a package with one plug-in."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(name, code, entry_points="[dtpt.methods]\nNAME = MODULE:METHOD\n"):
        module = f"plugin_{name}_{tmp_path.name}".replace("-", "_")
        about = tmp_path / f"{module}-1.0.dist-info"
        about.mkdir()
        (tmp_path / f"{module}.py").write_text(code)
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(
            entry_points.replace("NAME", name).replace("MODULE", module)
        )

    return install


@pytest.fixture
def impatient(monkeypatch):
    """Return a function that shortens the time limit, for plug-ins that are not imported yet."""
    return lambda: monkeypatch.setattr(plugins, "IMPORT_SECONDS", 0.3)


def test_broken_plugins_are_left_out_and_all_others_work(site, impatient):
    for name, (code, _) in BROKEN.items():
        site(f"b-{name}", code)
    site("a-sound", SOUND)
    site("z-sound", SOUND)
    for name, point in find_plugins().items():
        if name != "b-sleeps":
            plugins._load(point)
    impatient()
    known = known_methods()
    assert set(METHODS) | {"a-sound", "z-sound", "z-sound-static", "d-tpt-static"} <= set(known)
    assert not [name for name in known if name.startswith("b-")]
    found, problems = load_plugins()
    assert {"a-sound", "z-sound"} <= set(found)
    for name, (_, reason) in BROKEN.items():
        (line,) = [problem for problem in problems if f" b-{name} " in problem]
        assert reason in line
        assert len(line.splitlines()) == 1


@pytest.mark.parametrize("name", BROKEN)
def test_method_of_a_broken_plugin_is_refused_with_its_error(site, name, impatient):
    code, reason = BROKEN[name]
    if name == "sleeps":
        impatient()
    site(f"c-{name}", code)
    for asked in (f"c-{name}", f"c-{name}-static"):
        with pytest.raises(MethodError, match=f"c-{name} .*{reason}"):
            find_method(asked)


def test_a_plugin_that_sleeps_is_waited_for_once(site, impatient):
    impatient()
    site("d-sleeps", "import time; time.sleep(60)")
    known_methods()
    importing = threading.active_count()
    for _ in range(5):
        assert "d-sleeps" not in known_methods()
    assert threading.active_count() == importing  # each import has a thread, which sleeps


def test_no_plugin_is_imported_for_a_method_of_the_table_or_for_names(site, tmp_path):
    mark = tmp_path / "imported"
    site("e-marks", f"open({str(mark)!r}, 'w'); {SOUND}")
    for name in ("tpt", "d-tpt", "d-tpt-static", "mean-views"):
        assert find_method(name).name == name
    with pytest.raises(UnknownName, match="e-marks"):
        find_method("e-mark")
    with pytest.raises(UnknownName):
        find_method("zero-shot-static")
    assert {"e-marks", "d-tpt-static"} <= set(method_names())
    assert not mark.exists()
    assert find_method("e-marks").lambdas
    assert mark.exists()


def test_a_plugin_cannot_replace_a_method(site):
    site("tpt", SOUND)
    assert known_methods()["tpt"] is METHODS["tpt"] is find_method("tpt")
    assert any(" tpt " in problem for problem in load_plugins()[1])


def test_a_package_with_malformed_entry_points_disturbs_nothing(site):
    site("f-malformed", SOUND, entry_points="[console_scripts]\nno equals sign\n")
    site("g-sound", SOUND)
    assert "g-sound" in find_plugins()
    assert find_method("g-sound").name == "g-sound"
