"""The page: files of this package, read once, served as they are."""

from functools import lru_cache
from importlib import resources

from fastapi import FastAPI, Response

from dtpt.web.refusals import Refusal

KINDS = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@lru_cache(maxsize=1)
def files() -> dict[str, bytes]:
    """Return the content of every file of the page by its name.

    Example:
        >>> sorted(files())[-1], files()["index.html"][:15]
        ('words.js', b'<!doctype html>')
    """
    folder = resources.files("dtpt.web") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def add_pages(app: FastAPI) -> None:
    """Serve the page at / and its files under /static/; no path reaches the disk."""

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return Response(files()["index.html"], media_type=KINDS[".html"])

    @app.get("/static/{name}", include_in_schema=False)
    async def static(name: str) -> Response:
        content = files().get(name)
        if content is None:
            raise Refusal("not_found", "There is no such file.")
        return Response(content, media_type=KINDS["." + name.rpartition(".")[2]])
