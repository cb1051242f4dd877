"""Show the examples of docstrings as code on the site.

The sections are called "Example" in this project; mkdocstrings recognises "Examples" only.
"""

import re
from typing import Any

import griffe


class PluralExamples(griffe.Extension):
    """Rename the section while the source is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change one docstring."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(
                r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE
            )
