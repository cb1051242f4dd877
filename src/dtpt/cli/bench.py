"""`dtpt bench`: measurements, each a comparison inside one run."""

from cyclopts import App

app = App(name="bench", help="Measure speed: each benchmark compares two ways in one run.")
app.command("dtpt.bench.views:bench_views", name="views")
app.command("dtpt.bench.tuning:bench_tuning", name="tuning")
app.command("dtpt.bench.end_to_end:bench_end_to_end", name="end-to-end")
app.command("dtpt.bench.runs:bench_runs", name="runs")
app.command("dtpt.bench.chunks:bench_chunks", name="chunks")
app.command("dtpt.bench.pipeline:bench_pipeline", name="pipeline")
app.command("dtpt.bench.cluster:bench_cluster", name="cluster")
app.command("dtpt.bench.sizing:bench_sizing", name="sizing")
app.command("dtpt.bench.serve:bench_serve", name="serve")
app.command("dtpt.bench.rows:bench_rows", name="rows")
