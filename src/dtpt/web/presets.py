"""What comes with the package: class lists, example drawings, and the files of the page."""

import io
from functools import lru_cache
from importlib import resources
from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from dtpt.data import openmoji
from dtpt.data.catalog import NAMED_SETS, catalog_entry, family_title
from dtpt.data.dataset import prompt_name
from dtpt.web.guard import Refusal
from dtpt.web.schemas import MAX_CLASSES, MAX_TEXT, ClassList, Example

# Predictions that tuning changes, easy ones, and known errors of `pocket`.
DRAWINGS = tuple(f"{ord(emoji):X}" for emoji in "🦊🧊🍌🚲🦖🐱🎸🍙🌻🌶🔨⛵😎🪼🚂🏀")
MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

Name = Annotated[str, Path(max_length=MAX_TEXT)]

router = APIRouter()


@lru_cache(maxsize=1)
def class_lists() -> dict[str, tuple[ClassList, tuple[str, ...]]]:
    """Return the lists by name: groups of emoji, then the named data sets, the paper's first."""
    lists = []
    for group in openmoji.BENCHMARK_GROUPS if openmoji.is_installed() else ():
        classes = tuple(openmoji.official_name(code) for code in openmoji.concept_groups()[group])
        title = group.replace("-", " and ").capitalize()
        lists.append((f"openmoji/{group}", title, "Emoji", classes))
    for name in NAMED_SETS:
        known = catalog_entry(name)
        classes = tuple(map(prompt_name, known.classes))
        lists.append((name, known.title, family_title(known.family), classes))
    return {
        name: (ClassList(name=name, title=title, group=group, count=len(classes)), classes)
        for name, title, group, classes in lists
    }


def classes_of(dataset: str) -> tuple[str, ...] | None:
    """Return the class names of a data set of the lists; those in line art have the same."""
    _, names = class_lists().get(dataset.replace("openmoji-line/", "openmoji/"), (None, None))
    return names


def offered_lists(request: Request) -> dict[str, tuple[ClassList, tuple[str, ...]]]:
    """Return the lists that the model can classify: its own alone, where its texts are fixed."""
    fixed = request.app.state.service.playground.model.fixed_text
    if fixed is None:
        return class_lists()
    classes = fixed.classes[:MAX_CLASSES]
    entry = ClassList(name="model", title="All classes", group="The model's", count=len(classes))
    return {entry.name: (entry, classes)}


@router.get("/v1/classes")
async def list_class_lists(request: Request) -> list[ClassList]:
    """List the class lists on offer."""
    return [entry for entry, _ in offered_lists(request).values()]


@router.get("/v1/classes/{name:path}")
async def list_classes(request: Request, name: Name) -> list[str]:
    """Return the names of one class list."""
    lists = offered_lists(request)
    if name not in lists:
        raise Refusal("not_found", "There is no such class list.")
    return list(lists[name][1])


@router.get("/v1/examples")
async def list_examples() -> list[Example]:
    """List example drawings; none without the packages of the emoji benchmark."""
    if not openmoji.is_installed():
        return []
    group_of = {code: group for group, codes in openmoji.concept_groups().items() for code in codes}
    return [
        Example(id=code, name=openmoji.official_name(code), classes=f"openmoji/{group_of[code]}")
        for code in DRAWINGS
    ]


@router.get(
    "/v1/examples/{code}",
    responses={200: {"content": {"image/png": {}}}},
    response_class=Response,
)
async def render_example(
    code: Name,
    *,
    presentation: Annotated[str, Query(max_length=MAX_TEXT)] = "plain",
    line: bool = False,
) -> Response:
    """Return a drawing as PNG, with the pixels of the benchmark."""
    png = await run_in_threadpool(_drawing, code, presentation, line=line)
    return Response(png, media_type="image/png")


@lru_cache(maxsize=256)
def _drawing(code: str, presentation: str, *, line: bool) -> bytes:
    if not openmoji.is_installed() or not any(
        code in codes for codes in openmoji.concept_groups().values()
    ):
        raise Refusal("not_found", "There is no such drawing.")
    if presentation not in openmoji.PRESENTATIONS:
        names = ", ".join(openmoji.PRESENTATIONS)
        raise Refusal("not_found", f"There is no such presentation; use one of {names}.")
    written = io.BytesIO()
    openmoji.OpenMojiRef(code, presentation, line).open().save(written, "PNG")
    return written.getvalue()


@lru_cache(maxsize=1)
def page_files() -> dict[str, bytes]:
    """Return the files of the page by name, read once: no path of a client reaches the disk."""
    folder = resources.files("dtpt.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@router.get("/", include_in_schema=False)
async def page() -> Response:
    return Response(page_files()["index.html"], media_type=MEDIA_TYPES["html"])


@router.get("/static/{name}", include_in_schema=False)
async def page_file(name: str) -> Response:
    content = page_files().get(name)
    if content is None:
        raise Refusal("not_found", "There is no such file.")
    return Response(content, media_type=MEDIA_TYPES[name.rpartition(".")[2]])
