"""What real CLIP shows: numbers of a run that needs its weights, kept in `clip.json`.

The file is optional: without it nothing is said about CLIP. All values are fractions. An entry of
`methods` is the mean over the data sets; `intervals` are 95 % intervals of values by themselves,
`differences` those of differences to another method, corrected for their number.
`python docs/clip_tables.py record` writes it.

    {"command": "dtpt eval ...", "model": "ViT-B-16/openai", "fingerprint": "sha256 of the weights",
     "datasets": {"NAME": images, ...}, "seeds": [0], "note": "one sentence, may be empty",
     "methods": [{"method": "mean-views", "accuracy": 0.69, "gap": 0.05, "ece": 0.06,
                  "floor": 0.02, "brier": 0.42, "images": 2000,
                  "intervals": {"accuracy": [0.67, 0.71]},
                  "differences": {"zero-shot": {"accuracy": [-0.004, -0.011, 0.003]}}}]}
"""

from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from dtpt.methods import method_title, parse_label
from dtpt.metrics import METRICS
from dtpt.report.bars import brief_text

PACKAGED = "clip.json"
IN_LINE = ("zero-shot", "tps", "mean-views")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClipMethod(_Frozen):
    method: str  # as typed, with its λ
    accuracy: float
    gap: float  # mean confidence minus accuracy
    ece: float
    floor: float
    brier: float | None = None
    aurc: float | None = None
    views: float | None = None  # encoded for one image, where the method decides it; a mean
    images: int
    intervals: dict[str, tuple[float, float]] = {}
    # reference -> metric -> difference, low, high
    differences: dict[str, dict[str, tuple[float, float, float]]] = {}

    @property
    def title(self) -> str:
        parsed = parse_label(self.method)
        return method_title(parsed.name, parsed.lambda_)

    @property
    def text(self) -> str:
        gap = brief_text(self.gap, METRICS["signed_gap"], signed=True)
        return f"{self.title} {100 * self.accuracy:.1f} % (gap {gap})"


class ClipRecord(_Frozen):
    command: str
    model: str
    fingerprint: str
    datasets: dict[str, int]  # images by name
    views: int = 64  # of every image
    seeds: tuple[int, ...]
    methods: tuple[ClipMethod, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """One line: accuracy and gap of the methods that decide the question."""
        shown = [m for m in self.methods if m.method in IN_LINE]
        where = ", ".join(f"{count:,} images of {name}" for name, count in self.datasets.items())
        return f"Real CLIP ({self.model}, {where}): {'; '.join(m.text for m in shown)}."

    def difference_text(self, first: str, second: str, *, metric: str) -> str:
        """Write the difference of two methods in a metric as the reports do."""
        (found,) = (m for m in self.methods if parse_label(m.method).name == first)
        difference, *ends = found.differences[second][metric]
        texts = (brief_text(value, METRICS[metric]) for value in ends)
        return f"{brief_text(difference, METRICS[metric], signed=True)} [{', '.join(texts)}]"


def load_clip_record() -> ClipRecord | None:
    file = files("dtpt.report") / PACKAGED
    return ClipRecord.model_validate_json(file.read_bytes()) if file.is_file() else None
