"""Parts of pages that are made from code: between `<!-- made: WORDS -->` and `<!-- end -->`.

`python docs/dataset_trees.py` and `python docs/paper_tables.py` bring their pages up to date; tests
compare. `python docs/stream_tables.py` needs a study, which is not here. The pages are kept in the
repository, because people read them where no site is built.
"""

import re
from collections.abc import Callable

_MADE = re.compile(r"<!-- made: (.*?) -->\n((?:.*?\n)??)<!-- end -->", re.DOTALL)


def brought_up_to_date(text: str, make: Callable[[str], str | None]) -> str:
    r"""Return a page on which every made part is what `make` returns for its words.

    Where that is None, the part stays.

    Example:
        >>> print(brought_up_to_date("<!-- made: a b -->\n<!-- end -->", str.upper))
        <!-- made: a b -->
        A B
        <!-- end -->
    """

    def replaced(found: re.Match[str]) -> str:
        made = make(found[1])
        body = found[2] if made is None else f"{made}\n"
        return f"<!-- made: {found[1]} -->\n{body}<!-- end -->"

    return _MADE.sub(replaced, text)


def without_made_parts(text: str) -> str:
    """Return what people wrote on a page."""
    return _MADE.sub("", text)
