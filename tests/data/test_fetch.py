"""Fetching named sets from a local server: interrupted, truncated, changed and hostile archives."""

import io
import json
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest
from archive_server import serving, small_dtd, zipped

from dtpt.cli.main import call
from dtpt.data import download as downloading
from dtpt.data import fetch as fetching
from dtpt.data.catalog import catalog_entry
from dtpt.data.download import describe, download
from dtpt.data.fetch import WORK, origins, plan_fetch
from dtpt.data.unpack import DamagedArchive, unpack
from dtpt.errors import DatasetError

SPLIT = catalog_entry("dtd").split


@pytest.fixture(autouse=True)
def quick(monkeypatch) -> None:
    monkeypatch.setattr(downloading, "PAUSE", 0.0)
    monkeypatch.delenv("DTPT_DATA", raising=False)


@pytest.fixture(scope="module")
def dtd_zip() -> bytes:
    return small_dtd(b"\xff\xd8" + b"x" * 50)


def tarred(files, *, mode="w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


@pytest.fixture
def hub(dtd_zip, monkeypatch):
    """A server with dtd.zip; the package's hash of the real one is left out."""
    with serving({"dtd.zip": dtd_zip}) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        origin = origins()["dtd"]
        plain = origin.hub[0].model_copy(update={"bytes": None, "sha256": ""})
        changed = {**origins(), "dtd": origin.model_copy(update={"hub": (plain,)})}
        monkeypatch.setattr(fetching, "origins", lambda: changed)
        yield server


def run(*arguments) -> int:
    try:
        call([str(word) for word in arguments])
    except SystemExit as stop:
        return int(stop.code or 0)
    except DatasetError:  # which the program prints
        return 2
    return 0


def names(folder) -> set[str]:
    return {path.name for path in folder.iterdir()}


# whole commands


def test_a_set_is_fetched_unpacked_and_checked_and_nothing_else_is_left(hub, tmp_path, capsys):
    root = tmp_path / "data"
    assert run("datasets", "fetch", "dtd", "--data-root", root, "--json") == 0
    out, err = capsys.readouterr()
    (report,) = json.loads(out)
    assert (report["status"], report["found_images"]) == ("complete", 1692)
    assert "www.robots.ox.ac.uk" in err
    assert names(tmp_path) == {"data"}
    assert names(root) == {"dtd"}
    assert names(root / "dtd") == {SPLIT, "images"}
    asked = len(hub.requests)
    assert run("datasets", "fetch", "dtd", "--data-root", root) == 0
    assert len(hub.requests) == asked


def test_a_dry_run_asks_for_sizes_and_writes_nothing(hub, dtd_zip, tmp_path, capsys):
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path, "--dry-run", "--json") == 0
    (plan,) = json.loads(capsys.readouterr().out)
    assert plan["archives"][0]["bytes"] == len(dtd_zip)
    assert plan["needed"] == 2 * len(dtd_zip)
    assert {command for command, _, _ in hub.requests} == {"HEAD"}
    assert names(tmp_path) == set()


def test_an_interrupted_download_goes_on_where_it_stopped(hub, dtd_zip, tmp_path):
    hub.cuts = [1000, 5000, 20000]
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 0
    ranges = [given for command, _, given in hub.requests if command == "GET" and given]
    assert {"bytes=1000-", "bytes=6000-", "bytes=26000-"} <= set(ranges)


def test_what_stops_for_good_is_kept_for_the_next_time(hub, dtd_zip, tmp_path):
    hub.cuts = [1000] + [0] * 20
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 2
    assert (tmp_path / WORK / "dtd" / "dtd.zip.part").stat().st_size == 1000
    hub.cuts = []
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 0
    assert names(tmp_path) == {"dtd"}


def test_a_kill_between_any_two_steps_loses_nothing(hub, tmp_path, monkeypatch):
    """Each step ends once as a kill would end it; then the command goes on."""

    def killed(*_arguments, **_named):
        raise KeyboardInterrupt

    plan, install = plan_fetch("dtd", tmp_path), fetching._install
    for owner, name in [
        (downloading, "_append"),
        (downloading.os, "replace"),
        (fetching, "unpack"),
        (fetching.os, "rename"),
    ]:
        with monkeypatch.context() as patched:
            patched.setattr(owner, name, killed)
            with pytest.raises(KeyboardInterrupt):
                fetching.fetch(plan, tmp_path)
            assert names(tmp_path) == {WORK}
    with monkeypatch.context() as patched:
        patched.setattr(fetching, "_install", lambda *a, **b: (install(*a, **b), killed()))
        with pytest.raises(KeyboardInterrupt):
            fetching.fetch(plan, tmp_path)
    assert names(tmp_path) == {WORK, "dtd"}
    assert fetching.fetch(plan_fetch("dtd", tmp_path), tmp_path).ok
    assert names(tmp_path) == {"dtd"}


def test_a_folder_in_the_way_is_never_changed(hub, tmp_path):
    mine = tmp_path / "dtd" / "mine.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 2
    assert names(tmp_path) == {"dtd"}
    assert names(mine.parent) == {"mine.txt"}
    assert "GET" not in {command for command, _, _ in hub.requests}


def test_too_little_space_is_said_before_the_download(hub, tmp_path, monkeypatch):
    monkeypatch.setattr(fetching, "_free", lambda _: 10**6)
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 2
    assert {command for command, _, _ in hub.requests} == {"HEAD"}
    assert names(tmp_path) == set()


def test_space_is_counted_for_all_sets_together(hub, dtd_zip, tmp_path, monkeypatch):
    plan = plan_fetch("dtd", tmp_path).model_copy(update={"needed": 10**9})
    monkeypatch.setattr(fetching, "_free", lambda _: 17 * 10**8)
    fetching.check_space([plan], tmp_path)
    with pytest.raises(DatasetError, match="dtd, dtd"):
        fetching.check_space([plan, plan], tmp_path)


def test_what_cannot_be_fetched_of_a_group_is_named_and_the_rest_is_fetched(hub, tmp_path, capsys):
    sets = "imagenet,dtd,food101,eurosat"  # the server has dtd.zip alone
    assert run("datasets", "fetch", sets, "--data-root", tmp_path, "--json") == 1
    out, err = capsys.readouterr()
    assert [report["status"] for report in json.loads(out)] == ["complete"]
    for name in ("imagenet", "food101.zip", "eurosat.zip"):
        assert any(name in line for line in err.splitlines() if line.startswith("dtpt: "))
    assert run("datasets", "fetch", "imagenet,food101", "--data-root", tmp_path) == 2
    assert run("datasets", "fetch", "imagenet,dtd", "--data-root", tmp_path, "--dry-run") == 1
    assert names(tmp_path) <= {"dtd", WORK}


def test_a_note_beside_the_folder_is_no_obstacle_for_the_next_set(hub, dtd_zip, tmp_path):
    hub.files["dtd.zip"] = with_note(dtd_zip, b"theirs")
    (tmp_path / "README.md").write_text("mine")
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 0
    assert (tmp_path / "README.md").read_text() == "mine"
    assert names(tmp_path) == {"dtd", "README.md"}


def with_note(archive: bytes, text: bytes) -> bytes:
    buffer = io.BytesIO(archive)
    with zipfile.ZipFile(buffer, "a") as opened:
        opened.writestr("README.md", text)
    return buffer.getvalue()


def test_another_hash_than_the_hub_states_is_refused(hub, tmp_path):
    hub.sha256 = "0" * 64
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 2
    assert not list(tmp_path.rglob("*.zip*"))


def test_a_truncated_archive_is_downloaded_again(hub, dtd_zip, tmp_path):
    hub.files["dtd.zip"] = dtd_zip[: len(dtd_zip) // 2]
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 2
    hub.files["dtd.zip"] = dtd_zip
    assert run("datasets", "fetch", "dtd", "--data-root", tmp_path) == 0


def test_imagenet_is_explained_or_taken_from_an_archive(tmp_path, jpeg, capsys):
    assert run("datasets", "fetch", "imagenet", "--data-root", tmp_path) == 2
    entry = catalog_entry("imagenet")
    files = {f"val/x_{n}_{wnid}.JPEG": jpeg for n, wnid in enumerate(entry.wnids[:3])}
    archive = tmp_path / "val_images.tar.gz"
    archive.write_bytes(tarred(files))
    options = ("--archive", archive, "--data-root", tmp_path / "data")
    assert run("datasets", "fetch", "imagenet", *options) == 1  # 3 of 50,000 images
    assert names(tmp_path / "data/imagenet/images/val") == set(entry.wnids[:3])
    archive.write_bytes(tarred({"ILSVRC2012_val_00000001.JPEG": jpeg}))
    options = ("--archive", archive, "--data-root", tmp_path / "other")
    assert run("datasets", "fetch", "imagenet", *options) == 2
    assert archive.exists()


def test_every_named_set_has_an_origin_and_every_hub_archive_its_layout():
    for name, origin in origins().items():
        assert origin.page.startswith("https://")
        assert bool(origin.hub) == (name != "imagenet")
        assert catalog_entry(name).layouts[0].layout == "coop"
        for source in (*origin.hub, *origin.official):
            assert downloading.url_of(source.address).startswith("http")


# downloads


def test_a_server_without_ranges_or_with_a_new_version_starts_again(tmp_path):
    data = bytes(range(256)) * 40
    with serving({"a.bin": data}) as server:
        server.has_ranges, server.cuts = False, [100]
        download(f"{server.url}/a.bin", tmp_path / "a.bin")
        assert (tmp_path / "a.bin").read_bytes() == data
        server.has_ranges, server.cuts = True, [100] + [0] * 5
        with pytest.raises(DatasetError):
            download(f"{server.url}/a.bin", tmp_path / "b.bin")
        server.files["a.bin"], server.cuts = data[::-1], []
        download(f"{server.url}/a.bin", tmp_path / "b.bin")
        assert (tmp_path / "b.bin").read_bytes() == data[::-1]
    assert names(tmp_path) == {"a.bin", "b.bin"}


def test_a_part_that_was_complete_is_not_downloaded_again(tmp_path):
    data = b"x" * 1000
    (tmp_path / "a.bin.part").write_bytes(data)
    with serving({"a.bin": data}) as server:
        assert describe(f"{server.url}/a.bin").size == 1000
        download(f"{server.url}/a.bin", tmp_path / "a.bin")
        assert not any(c == "GET" and given is None for c, _, given in server.requests)
    assert (tmp_path / "a.bin").read_bytes() == data


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://x/y", "hub:nothing", "x.zip"])
def test_only_http_is_downloaded(address, tmp_path):
    with pytest.raises(DatasetError):
        download(address, tmp_path / "x")


def test_more_than_the_stated_bytes_are_refused(tmp_path):
    with serving({"a.bin": b"x" * 1000}) as server, pytest.raises(DatasetError):
        download(f"{server.url}/a.bin", tmp_path / "a.bin", size=10)


# archives


def special(name, kind, target="") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, target
        archive.addfile(info)
    return buffer.getvalue()


def zipped_link() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "/etc/passwd")
    return buffer.getvalue()


def declared_bomb() -> bytes:
    """A tar file of one header, which declares a terabyte."""
    info = tarfile.TarInfo("big")
    info.size = 10**12
    return info.tobuf(tarfile.GNU_FORMAT)


def header_bomb() -> bytes:
    """An extended header of a gigabyte, which a reader would take into memory."""
    info = tarfile.TarInfo("x")
    info.type, info.size = tarfile.XHDTYPE, 10**9
    return info.tobuf(tarfile.GNU_FORMAT)


HOSTILE = {
    "zip-up": zipped({"ok.txt": b"1", "../out.txt": b"2"}),
    "zip-absolute": zipped({"/tmp/out.txt": b"2"}),
    "zip-backslash": zipped({"..\\out.txt": b"2"}),
    "zip-drive": zipped({"C:/out.txt": b"2"}),
    "zip-link": zipped_link(),
    "zip-bomb": zipped({"zeros": bytes(3_000_000)}),
    "tar-up": tarred({"a/../../out.txt": b"2"}),
    "tar-absolute": tarred({"/out.txt": b"2"}),
    "tar-twice": tarred({"a": b"1", "./a": b"2"}),
    "tar-link": special("link", tarfile.SYMTYPE, "/etc"),
    "tar-hard-link": special("link", tarfile.LNKTYPE, "../x"),
    "tar-device": special("null", tarfile.CHRTYPE),
    "tar-pipe": special("pipe", tarfile.FIFOTYPE),
    "tar-bomb": tarred({"zeros": bytes(3_000_000)}),
    "tar-declared-bomb": declared_bomb(),
    "tar-header-bomb": header_bomb(),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_archive_writes_nothing_outside_of_its_folder(kind, tmp_path):
    archive, folder = tmp_path / "a.bin", tmp_path / "deep" / "into"
    archive.write_bytes(HOSTILE[kind])
    folder.mkdir(parents=True)
    with pytest.raises(DatasetError) as caught:
        unpack(archive, folder, most_bytes=1_000_000)
    assert not isinstance(caught.value, DamagedArchive)
    assert names(tmp_path) == {"a.bin", "deep"}
    assert names(tmp_path / "deep") == {"into"}
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) <= 1_000_000


@pytest.mark.parametrize("make", [zipped, tarred])
def test_an_archive_cut_anywhere_is_damaged(make, tmp_path):
    files = {f"a/{n}.txt": bytes([n]) * 3000 for n in range(20)}
    whole = make(files)
    archive = tmp_path / "a.bin"
    for index, length in enumerate((0, 1, 10, len(whole) // 2, len(whole) - 30)):
        archive.write_bytes(whole[:length])
        with pytest.raises(DamagedArchive):
            unpack(archive, tmp_path / str(index), most_bytes=10**6)
    archive.write_bytes(whole)
    assert unpack(archive, tmp_path / "whole", most_bytes=10**6) == 20
    assert Path(tmp_path / "whole/a/7.txt").read_bytes() == files["a/7.txt"]
