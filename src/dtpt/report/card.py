"""The run card: what was evaluated, how well, and with which limits, in Markdown."""

from dtpt.report.content import Content
from dtpt.report.facts import block_facts, dataset_rows, environment_facts, summary_sentences
from dtpt.report.layout import markdown

LIMITS = (
    "Confidence is only as meaningful as the class list: a picture of none of the classes still "
    "gets an answer, often a confident one.",
    "Calibration was measured on these data sets; on other data it may be better or worse.",
    "The prompt is tuned anew for every picture: answers do not depend on their order, and "
    "nothing is learnt from one picture for the next.",
    "MCE rests on the worst bin, which may hold very few pictures.",
)


def run_card(content: Content) -> str:
    """Return the card of a report."""
    parts = [f"# {_plain(content.title)}", ""]
    parts += [*map(_plain, summary_sentences(content)), ""]
    if content.gathered.remarks:
        parts += ["## Before you read on", ""]
        parts += [*(f"- {_plain(text)}" for text in content.gathered.remarks), ""]
    for block in content.blocks:
        parts += [f"## {_plain(block.title)}", ""]
        parts += [f"- **{name}**: {_plain(value)}" for name, value in block_facts(block.block)]
        parts += ["", "| data set | family | classes | pictures | views | fingerprint |"]
        parts += ["| :--- | :--- | ---: | ---: | :--- | :--- |"]
        parts += [f"| {' | '.join(map(_plain, row))} |" for row in dataset_rows(block.block)]
        parts += ["", *(markdown(table) for table in block.means)]
    parts += [markdown(table) for table in content.prompt_tables]
    parts += ["## Limits", "", *(f"- {text}" for text in LIMITS), ""]
    parts += ["## Machine and time", ""]
    parts += [f"- **{name}**: {_plain(v)}" for name, v in environment_facts(content.gathered)]
    parts += ["", "## Commands", "", "```sh", *content.commands, "```", ""]
    parts += [f"Made by dtpt {content.version} on {content.date}.", ""]
    return "\n".join(parts)


def _plain(text: str) -> str:
    """Keep a foreign text from being read as Markdown or HTML."""
    table = {"|": "\\|", "<": "&lt;", ">": "&gt;", "\n": " ", "*": "\\*", "`": "\\`", "[": "\\["}
    return "".join(table.get(character, character) for character in text)
