"""The examples at the end of every command's help: short, to be copied, and parsed by a test."""

from cyclopts import App

EXAMPLES: dict[str, tuple[str, ...]] = {
    "predict": (
        "dtpt predict photo.jpg --classes cat,dog --model ViT-B-16/openai",
        "dtpt predict *.png --classes-file names.txt --method d-tpt@auto --json",
    ),
    "serve": ("dtpt serve --open", "dtpt serve --model ViT-B-16/openai --port 8080"),
    "methods": ("dtpt methods", "dtpt methods --compare runs/latest"),
    "models": ("dtpt models", "dtpt models fetch ViT-B-16/openai"),
    "models fetch": ("dtpt models fetch ViT-B-16/openai",),
    "models add": (
        "dtpt models add flowers ~/checkpoints/flowers --activation gelu",
        "dtpt models add ViT-B-16/openai ~/checkpoints/ViT-B-16.pt",
    ),
    "models remove": ("dtpt models remove flowers",),
    "datasets": ("dtpt datasets --data-root ~/data",),
    "datasets check": ("dtpt datasets check dtd,eurosat --data-root ~/data --deep",),
    "score": (
        "dtpt score predictions.csv",
        "dtpt score predictions.npz --bootstrap 1000 --diagram reliability.svg",
    ),
    "eval": (
        "dtpt eval --dataset openmoji/food-drink --limit 64",
        "dtpt eval --dataset folder:pictures --method zero-shot,d-tpt@1e6 --seed 0,1,2",
        "dtpt eval --model RN50/openai --dataset dtd --data-root ~/data",
        "dtpt eval --dataset openmoji --engine ray=10.0.0.7:6379 --plan",
    ),
    "sweep": ("dtpt sweep --dataset openmoji/objects --limit 64 --output runs/sweep",),
    "merge": ("dtpt merge runs/latest", "dtpt merge runs/latest --partial"),
    "export": ("dtpt export runs/latest --format parquet --output exports",),
    "calibrate": (
        "dtpt calibrate runs/latest --method d-tpt --output promise.json",
        "dtpt calibrate runs/latest --method tpt,d-tpt --check 200",
    ),
    "analyze": ("dtpt analyze --dataset openmoji/food-drink --limit 64",),
    "analyze basis": ("dtpt analyze basis --dataset openmoji/food-drink --limit 64",),
    "analyze controls": ("dtpt analyze controls --dataset openmoji/objects --limit 64",),
    "analyze views": ("dtpt analyze views --dataset openmoji/objects --limit 64",),
    "analyze regularisers": ("dtpt analyze regularisers --dataset dtd,eurosat",),
    "cache": ("dtpt cache show", "dtpt cache prune --limit 500MB"),
    "cache show": ("dtpt cache show",),
    "cache prune": ("dtpt cache prune --limit 500MB",),
    "cache verify": ("dtpt cache verify",),
    "report": ("dtpt report runs/latest", "dtpt report runs/a runs/b --output page"),
    "compare": ("dtpt compare runs/latest", "dtpt compare runs/latest --against tpt --json"),
    "reproduce": (
        "dtpt reproduce table1 --data-root ~/data --dry-run",
        "dtpt reproduce table4 --dataset dtd,eurosat --seed 0 --data-root ~/data",
        "dtpt reproduce table2 --partial --data-root ~/data",
    ),
    "demo": ("dtpt demo", "dtpt demo --full --output demo-output"),
    "doctor": ("dtpt doctor", "dtpt doctor --json"),
    "bench": ("dtpt bench views --size 64", "dtpt bench tuning --classes 10,47"),
    "bench views": ("dtpt bench views --size 64 --repeat 3",),
    "bench tuning": ("dtpt bench tuning --classes 10,47 --methods five",),
    "bench end-to-end": ("dtpt bench end-to-end --classes 47 --settings one,five",),
    "bench runs": ("dtpt bench runs --images 3 --model pocket",),
    "bench chunks": ("dtpt bench chunks --threads 1",),
    "bench pipeline": ("dtpt bench pipeline --pictures 64",),
    "bench rows": ("dtpt bench rows --classes 10,1000",),
    "bench cluster": ("dtpt bench cluster --pictures 2000 --actors 1,2,4",),
    "bench sizing": ("dtpt bench sizing --gflops 50,1000",),
    "bench serve": ("dtpt bench serve --clients 1,4 --requests 0",),
    "--install-completion": ("dtpt --install-completion", "dtpt --install-completion --shell zsh"),
}


def add_examples(app: App, name: str) -> None:
    """Show the examples of a command, and of those below it, at the end of their help."""
    lines = "\n".join(EXAMPLES.get(name, ()))
    app.help_epilogue = f"Examples:\n\n```\n{lines}\n```" if lines else ""
    for below in app:
        if not below.startswith("-"):
            add_examples(app[below], f"{name} {below}")
