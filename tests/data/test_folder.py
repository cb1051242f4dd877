"""`folder:PATH`: every image gets the class that folder and class list say, or is refused."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dtpt.data import check_dataset, load_dataset
from dtpt.data.folder import pair_lines
from dtpt.errors import DatasetError


def named(dataset) -> dict[str, str]:
    return {sample.id: dataset.classes[sample.label] for sample in dataset.samples}


def test_folder_names_are_the_classes_in_code_point_order(tmp_path, put):
    for leaf in (
        "b_cat/1.jpg",
        "a dog/x/2.png",
        "Zebra/3.JPEG",
        "b_cat/.hidden.jpg",
        "b_cat/n.txt",
    ):
        put(tmp_path / leaf)
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("Zebra", "a dog", "b cat")
    assert named(dataset) == {
        "Zebra/3.JPEG": "Zebra",
        "a dog/x/2.png": "a dog",
        "b_cat/1.jpg": "b cat",
    }


def test_the_folder_at_a_named_level_is_the_cluster(tmp_path, put):
    for leaf in ("fox/day1/a/1.jpg", "fox/day1/2.jpg", "fox/day2/3.jpg", "wolf/day1/4.jpg"):
        put(tmp_path / leaf)
    put(tmp_path / "wolf" / "5.jpg")

    def clusters(**options):
        dataset = load_dataset(f"folder:{tmp_path}", **options)
        return {s.id.rpartition("/")[2]: s.cluster for s in dataset.samples}, dataset.notes

    plain, notes = clusters()
    assert plain["1.jpg"] == "fox/day1/a/1.jpg"
    assert notes == ()
    first, notes = clusters(cluster_level=1)
    assert first == {
        "1.jpg": "fox/day1",
        "2.jpg": "fox/day1",
        "3.jpg": "fox/day2",
        "4.jpg": "wolf/day1",
        "5.jpg": "wolf/5.jpg",
    }
    assert "wolf/5.jpg" in notes[0]
    second, _ = clusters(cluster_level=2)
    assert second["1.jpg"] == "fox/day1/a"
    assert second["2.jpg"] == "fox/day1/2.jpg"
    with pytest.raises(DatasetError, match="manifest"):
        clusters(cluster_level=3)
    with pytest.raises(DatasetError, match="openmoji"):
        load_dataset("openmoji/food-drink", cluster_level=1)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_folder_labels_do_not_depend_on_the_listing_order(seed, tmp_path, put, shuffled):
    for number in range(12):
        for leaf in ("a.jpg", "b.jpg", "deeper/c.jpg"):
            put(tmp_path / f"class{number}" / leaf)
    plain = load_dataset(f"folder:{tmp_path}")
    with shuffled(seed):
        mixed = load_dataset(f"folder:{tmp_path}")
    assert mixed == plain


def test_class_list_fixes_order_and_names_and_strays_are_reported(tmp_path, put):
    for folder in ("n01", "n02", "n03", "stray"):
        put(tmp_path / folder / "a.jpg")
    (tmp_path / "classes.txt").write_text("# order of the labels\nn03\tred fox\n\nn01 wolf\nn02\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("red fox", "wolf", "n02")
    assert named(dataset) == {"n03/a.jpg": "red fox", "n01/a.jpg": "wolf", "n02/a.jpg": "n02"}
    assert "stray" in dataset.notes[0]


def test_number_folders_need_a_class_list_and_are_read_as_numbers(tmp_path, put):
    for number in range(12):
        put(tmp_path / str(number) / f"{number}.jpg")
    with pytest.raises(DatasetError, match=r"classes\.txt"):
        load_dataset(f"folder:{tmp_path}")
    (tmp_path / "classes.txt").write_text("\n".join(f"class {n}" for n in range(12)))
    dataset = load_dataset(f"folder:{tmp_path}")
    assert named(dataset) == {f"{n}/{n}.jpg": f"class {n}" for n in range(12)}


def test_class_list_about_other_folders_is_refused(tmp_path, put):
    put(tmp_path / "cat" / "a.jpg")
    (tmp_path / "classes.txt").write_text("tench\ngoldfish\n")
    with pytest.raises(DatasetError, match="tench"):
        load_dataset(f"folder:{tmp_path}")


def test_a_listed_class_without_folder_is_noted(tmp_path, put):
    put(tmp_path / "cat" / "a.jpg")
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("cat", "dog")
    assert "dog" in dataset.notes[0]
    assert check_dataset(f"folder:{tmp_path}").class_counts == (("cat", 1), ("dog", 0))


@pytest.mark.parametrize("content", ["absent", "empty", "file"])
def test_no_folder_of_class_folders_is_refused(content, tmp_path):
    path = tmp_path / content
    if content == "empty":
        path.mkdir()
    if content == "file":
        path.write_text("x")
    with pytest.raises(DatasetError, match=content):
        load_dataset(f"folder:{path}")


# ------------------------------------------------------------------------------- number folders


def plant_numbers(tmp_path, put, *, numbers, lines):
    for number in numbers:
        put(tmp_path / number / f"{int(number)}.jpg")
    (tmp_path / "classes.txt").write_text("\n".join(lines))
    return f"folder:{tmp_path}"


def test_numbered_lines_are_paired_by_number_although_all_folders_are_numbers(tmp_path, put):
    lines = ["1 pink primrose", "2 hard-leaved pocket orchid", "3 canterbury bells"]
    dataset = load_dataset(plant_numbers(tmp_path, put, numbers="123", lines=lines))
    assert dataset.classes == ("pink primrose", "hard-leaved pocket orchid", "canterbury bells")
    assert named(dataset) == {f"{line[0]}/{line[0]}.jpg": line[2:] for line in lines}
    assert dataset.notes == ()


@pytest.mark.parametrize("numbers", [["1", "2", "3"], ["01", "02", "03"], ["0", "1", "2"]])
def test_plain_names_are_taken_in_the_order_of_folders_that_count_from_0_or_1(
    numbers, tmp_path, put
):
    name = plant_numbers(tmp_path, put, numbers=numbers, lines=["rose", "lily", "2012 tulip"])
    classes = ["rose", "lily", "2012 tulip"]
    truth = {f"{n}/{int(n)}.jpg": title for n, title in zip(numbers, classes, strict=True)}
    assert named(load_dataset(name)) == truth


@pytest.mark.parametrize(
    ("numbers", "lines", "message"),
    [
        (["1", "2", "4"], ["a", "b", "c"], "1 to 4"),
        (["1", "2", "3"], ["a", "b"], "2 names"),
        (["0", "1"], ["a", "b", "c"], "3 names"),
        (["2", "3"], ["a", "b"], "0 to 1 or 1 to 2"),
        (["1", "01"], ["1 a", "2 b"], "same"),
        (["0", "1", "2"], ["1 series", "3 series", "5 series"], "5 series|3 series|1 series"),
        (["1", "2"], ["1 rose", "lily"], "lily"),
        (["1", "2"], ["1 rose", "1 lily"], "more"),
        (["1", "2"], ["1 rose", "01 lily"], "more"),
    ],
)
def test_number_folders_that_fit_in_no_way_or_in_two_are_refused(
    numbers, lines, message, tmp_path, put
):
    with pytest.raises(DatasetError, match=message):
        load_dataset(plant_numbers(tmp_path, put, numbers=numbers, lines=lines))


def test_lines_without_folder_and_folders_without_line_are_noted(tmp_path, put):
    name = plant_numbers(tmp_path, put, numbers="12", lines=["1 rose", "2 lily", "3 tulip"])
    dataset = load_dataset(name)
    assert dataset.classes == ("rose", "lily", "tulip")
    assert dataset.notes == (
        "Absent: 1 class folder (3).",
        "Without images: 1 class (tulip).",
    )
    (tmp_path / "classes.txt").write_text("2 lily\n")
    dataset = load_dataset(name)
    assert named(dataset) == {"2/2.jpg": "lily"}
    assert dataset.notes[0] == "Left out: 1 folder without class (1)."


@given(data=st.data())
def test_number_folders_get_their_own_name_or_are_refused(data):
    """Draw which folder has which name, write the list in any form, and compare."""
    form = data.draw(st.sampled_from(["{folder}\t{name}", "{folder} {name}", "{name}"]))
    titles = ["rose", "a b", "2012 Acura"] + (["2 tulips", "7"] if "folder" in form else [])
    names = data.draw(st.lists(st.sampled_from(titles), min_size=1))
    first, width = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3))
    truth = {first + place: f"{name} {place}" for place, name in enumerate(names)}
    order = data.draw(st.permutations(sorted(truth))) if "folder" in form else sorted(truth)
    present = data.draw(st.lists(st.sampled_from(order), unique=True, min_size=1))
    lines = [form.format(folder=value, name=truth[value]) for value in order]
    folders = [f"{value:0{width}d}" for value in present]
    if "folder" not in form and (len(present) < len(lines) or first > 1):
        with pytest.raises(DatasetError, match=r"classes\.txt"):
            pair_lines(lines, folders, listed_in="classes.txt")
        return
    pairs = pair_lines(lines, folders, listed_in="classes.txt")
    assert [title for _, title in pairs] == [truth[value] for value in order]
    assert {int(folder): title for folder, title in pairs} == truth


# --------------------------------------------------------------------------------- other folders


def test_a_line_with_a_blank_and_no_folder_is_refused_where_others_are_split(tmp_path, put):
    put(tmp_path / "c1" / "a.jpg")
    (tmp_path / "classes.txt").write_text("c1 red fox\nc2 wolf\n")
    with pytest.raises(DatasetError, match="c2 wolf"):
        load_dataset(f"folder:{tmp_path}")
    (tmp_path / "classes.txt").write_text("c1\tred fox\nc2\twolf\n")
    assert load_dataset(f"folder:{tmp_path}").classes == ("red fox", "wolf")


def test_absent_folders_of_wordnet_ids_keep_their_name_out_of_the_prompt(tmp_path, put):
    put(tmp_path / "n01440764" / "a.jpg")
    (tmp_path / "classes.txt").write_text("n01440764 tench\nn01443537 goldfish\n")
    assert load_dataset(f"folder:{tmp_path}").classes == ("tench", "goldfish")


@pytest.mark.parametrize("listed", [False, True])
def test_folders_of_wordnet_ids_get_imagenets_names(listed, tmp_path, put):
    for folder in ("n01443537", "n01440764", "n03773504"):
        put(tmp_path / folder / "a.jpg")
    if listed:
        (tmp_path / "classes.txt").write_text("n01440764\nn01443537\nn03773504\n")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.classes == ("tench", "goldfish", "missile")
    assert named(dataset)["n01443537/a.jpg"] == "goldfish"
    assert "n01440764 is 'tench'" in dataset.notes[0]


def test_wordnet_ids_that_imagenet_does_not_have_are_refused_with_the_remedy(tmp_path, put):
    for folder in ("n01440764", "n99999999"):
        put(tmp_path / folder / "a.jpg")
    with pytest.raises(DatasetError, match="n99999999"):
        load_dataset(f"folder:{tmp_path}")


def test_everything_left_out_is_noted(tmp_path, put):
    put(tmp_path / "fox" / "a.jpg")
    put(tmp_path / "loose.jpg")
    (tmp_path / "fox" / "a.heic").write_bytes(b"x")
    (tmp_path / "wolf").mkdir()
    (tmp_path / "fox" / "linked").symlink_to(tmp_path / "wolf")
    dataset = load_dataset(f"folder:{tmp_path}")
    assert dataset.notes == (
        "Left out: 1 image outside of the class folders (loose.jpg).",
        "Left out: 2 files of another kind or linked folder (fox/a.heic, fox/linked/).",
        "Without images: 1 class (wolf).",
    )


def test_a_folder_that_cannot_be_listed_is_refused_and_not_taken_for_empty(
    tmp_path, put, monkeypatch
):
    put(tmp_path / "fox" / "a.jpg")
    put(tmp_path / "wolf" / "a.jpg")
    scandir = os.scandir

    def locked(path):
        if os.fspath(path).endswith("wolf"):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", locked)
    with pytest.raises(DatasetError, match="wolf"):
        load_dataset(f"folder:{tmp_path}")


def test_a_byte_order_mark_is_no_part_of_the_first_class(tmp_path, put):
    put(tmp_path / "fox" / "a.jpg")
    (tmp_path / "classes.txt").write_bytes(b"\xef\xbb\xbffox\n")
    assert load_dataset(f"folder:{tmp_path}").classes == ("fox",)


def test_a_set_of_one_class_has_a_note(tmp_path, put):
    put(tmp_path / "cat" / "a.png")
    (note,) = load_dataset(f"folder:{tmp_path}").notes
    assert "'cat'" in note
