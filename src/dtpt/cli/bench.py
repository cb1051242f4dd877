"""`dtpt bench`: measurements, each a comparison inside one run."""

from cyclopts import App

app = App(name="bench", help="Measure speed: each benchmark compares two ways in one run.")
app.command("dtpt.cli.bench_tuning:bench_tuning", name="tuning")
app.command("dtpt.cli.bench_views:bench_views", name="views")
app.command("dtpt.cli.bench_runs:bench_runs", name="runs")
