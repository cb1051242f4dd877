"""Data sets as people call them."""

from dtpt.data.catalog import NAMED_SETS, catalog_entry


def set_title(name: str) -> str:
    """Return a short title of a data set.

    Example:
        >>> set_title("oxford_pets"), set_title("openmoji-line/food-drink")
        ('OxfordPets', 'food-drink (line)')
        >>> set_title("folder:/data/my pets")
        'my pets'
    """
    if name in NAMED_SETS:
        return catalog_entry(name).title
    style, slash, group = name.partition("/")
    if style in ("openmoji", "openmoji-line"):
        kind = "line" if style.endswith("-line") else "colour"
        return f"{group} ({kind})" if slash else f"OpenMoji ({kind})"
    scheme, colon, rest = name.partition(":")
    if colon and scheme in ("folder", "manifest", "wds", "hf"):
        return rest.rstrip("/").rsplit("/", 1)[-1] or rest
    return name
