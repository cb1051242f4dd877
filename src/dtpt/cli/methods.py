"""`dtpt methods`: the table of methods, plug-ins included."""


def methods() -> None:
    """List the methods, their default lambda per family of data sets, and the modifiers."""
    from rich.console import Console
    from rich.table import Table

    from dtpt.methods import FAMILIES, known_methods
    from dtpt.methods.resolve import MODIFIERS

    table = Table("method", "what it does", *(f"λ, {family}" for family in FAMILIES))
    for name, method in known_methods().items():
        lambdas = [f"{method.lambdas[f]:g}" if f in method.lambdas else "" for f in FAMILIES]
        table.add_row(name, method.summary, *lambdas)
    console = Console()
    console.print(table)
    console.print(f"Modifiers, written method+modifier: {', '.join(MODIFIERS)}, ts=1.16")
