"""Any folder of class folders: `folder:PATH`.

Without a class list the folder names, sorted by code point, are the classes. A file `classes.txt`
in the folder fixes order and names. Its lines are folder names; or folder name, tab or blank, class
name (`n01440764 tench`); or, when all folders are numbers, class names, line 1 for folder 0.
"""

from pathlib import Path

from dtpt.data.dataset import Dataset, prompt_name
from dtpt.data.labels import find_class_file, read_class_file
from dtpt.data.paths import subfolders
from dtpt.data.trees import read_tree
from dtpt.errors import DatasetError

SCHEME = "folder:"


def load_folder(path: Path, *, name: str = "") -> Dataset:
    """Load a folder of class folders.

    Args:
        path: The folder.
        name: Name of the data set; `folder:PATH` when empty.
    """
    if not path.is_dir():
        raise DatasetError(f"{path} is no folder; folder:PATH needs a folder of class folders.")
    present = subfolders(path)
    if not present:
        raise DatasetError(f"{path} has no class folders.")
    class_file = find_class_file(path)
    pairs = _listed(class_file, present) if class_file else _unlisted(path, present)
    labels = {folder: label for label, (folder, _) in enumerate(pairs)}
    listing = read_tree(path, labels, layout="class-folders")
    absent = tuple(f"class folder {missing.name!r} is missing" for missing in listing.missing)
    return Dataset(
        name=name or f"{SCHEME}{path}",
        classes=tuple(prompt_name(title) for _, title in pairs),
        samples=listing.samples,
        source=str(path),
        remarks=listing.remarks + absent,
    )


def _unlisted(path: Path, present: list[str]) -> list[tuple[str, str]]:
    if all(name.isdecimal() for name in present):
        raise DatasetError(
            f"The folders of {path} are numbers; name the classes in {path / 'classes.txt'}, "
            "one per line, line 1 being folder 0."
        )
    return [(name, name) for name in present]


def _listed(class_file: Path, present: list[str]) -> list[tuple[str, str]]:
    """Return (folder, class name) in the order of the class list."""
    lines = read_class_file(class_file)
    known = set(present)
    if not known.intersection(lines) and all(name.isdecimal() for name in present):
        return [(str(number), line) for number, line in enumerate(lines)]
    pairs = [_pair(line, known) for line in lines]
    folders = [folder for folder, _ in pairs]
    if not known.intersection(folders):
        raise DatasetError(
            f"No line of {class_file} starts with the name of a folder beside it "
            f"(first line {lines[0]!r}, first folder {present[0]!r})."
        )
    if len(set(folders)) != len(folders):
        raise DatasetError(f"{class_file} lists a folder twice.")
    return pairs


def _pair(line: str, known: set[str]) -> tuple[str, str]:
    if line in known:
        return line, line
    folder, tab, title = line.partition("\t")
    if not tab:
        folder, _, title = line.partition(" ")
    if title.strip() and (tab or folder in known):
        return folder.strip(), title.strip()
    return line, line
