import pytest

from dtpt.data import DATASETS, GROUPS, expand_names
from dtpt.errors import DatasetError, UnknownName


def test_groups_and_names_expand_in_order_without_repetition():
    names = expand_names("dtd, natural-shifts,imagenet_a,dtd")
    assert names == ["dtd", "imagenet_a", "imagenet_v2", "imagenet_r", "imagenet_sketch"]


def test_all_is_both_families_and_groups_name_only_known_sets():
    assert expand_names("all") == expand_names(["fine-grained", "natural-shifts"])
    assert len(expand_names("all")) == 15
    assert all(name in DATASETS for members in GROUPS.values() for name in members)
    assert len(GROUPS["openmoji-groups"]) == len(GROUPS["openmoji-line-groups"]) == 6


def test_schemes_pass_and_commas_in_braces_do_not_split():
    pattern = "wds:/x/{a,b}-{000..003}.tar"
    assert expand_names(f"{pattern},folder:/tmp/x y") == [pattern, "folder:/tmp/x y"]


def test_a_file_of_names_is_expanded(tmp_path):
    path = tmp_path / "sets.txt"
    path.write_text("# my sets\ndtd  # textures\n\neurosat,openmoji/objects\n")
    assert expand_names(f"@{path},dtd") == ["dtd", "eurosat", "openmoji/objects"]


def test_lists_in_lists_absent_and_empty_lists_are_refused(tmp_path):
    path = tmp_path / "sets.txt"
    path.write_text(f"@{path}\n")
    with pytest.raises(DatasetError, match="another list"):
        expand_names(f"@{path}")
    with pytest.raises(DatasetError, match=r"none\.txt"):
        expand_names(f"@{tmp_path / 'none.txt'}")
    path.write_text("# nothing\n")
    for text in (f"@{path}", "", " , "):
        with pytest.raises(DatasetError, match="named in"):
            expand_names(text)


def test_unknown_names_get_a_suggestion():
    with pytest.raises(UnknownName, match="eurosat"):
        expand_names("dtd,eurosatt")
