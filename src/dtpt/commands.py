"""Command lines that give the same numbers again, written from options. No torch."""

import shlex
from collections.abc import Collection, Mapping

from dtpt.options import Options, flag


def command_line(
    command: str,
    *words: str,
    options: type[Options],
    given: Mapping[str, object],
    always: Collection[str] = (),
) -> str:
    """Return `dtpt COMMAND WORDS --flag value ...`, quoted for a shell.

    Args:
        command: such as `eval`.
        words: positional arguments.
        options: the command's options, which know the defaults.
        given: values by name, in the order of printing; None and defaults are left out.
        always: names that are printed even with their default.

    Example:
        >>> from dtpt.options import PredictOptions
        >>> given = {"model": "pocket", "classes": "cat,dog", "views": 16, "augmix": False}
        >>> command_line("predict", "a b.png", options=PredictOptions, given=given)
        "dtpt predict 'a b.png' --classes cat,dog --views 16 --no-augmix"
    """
    parts = ["dtpt", command, *words]
    for name, value in given.items():
        known = options.model_fields.get(name)
        is_default = known is not None and value == known.default
        if value is not None and (name in always or not is_default):
            parts += _flag_words(name, value)
    return shlex.join(parts)


def _flag_words(name: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [flag(name) if value else flag(f"no_{name}")]
    if isinstance(value, tuple | list):
        return [flag(name), ",".join(str(part) for part in value)]
    return [flag(name), str(value)]
