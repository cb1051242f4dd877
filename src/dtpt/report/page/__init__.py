"""The report for people: one HTML page and a Markdown card, from templates."""

from dtpt.report.page.card import run_card
from dtpt.report.page.render import render_page

__all__ = ["render_page", "run_card"]
