"""What real CLIP shows: numbers of a run that needs its weights, kept in `clip.json`.

The file is optional: without it nothing is said about CLIP. All values are fractions. An entry of
`methods` is the mean over the data sets; `intervals` are 95 % intervals of values by themselves,
`against_tpt` those of differences to TPT, corrected for their number.

    {"command": "dtpt eval ...", "model": "ViT-B-16/openai", "fingerprint": "sha256 of the weights",
     "datasets": {"NAME": images, ...}, "seeds": [0], "note": "one sentence, may be empty",
     "methods": [{"method": "d-tpt@1e5", "accuracy": 0.69, "gap": 0.05, "ece": 0.06,
                  "floor": 0.02, "brier": 0.42, "images": 2000,
                  "intervals": {"accuracy": [0.67, 0.71]},
                  "against_tpt": {"accuracy": [-0.004, -0.011, 0.003]}}]}
"""

from importlib.resources import files

from pydantic import BaseModel, ConfigDict

from dtpt.methods import method_title, parse_label
from dtpt.metrics import METRICS
from dtpt.report.bars import brief_text

PACKAGED = "clip.json"
IN_LINE = ("zero-shot", "tpt", "d-tpt", "mean-views")


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ClipMethod(_Frozen):
    method: str  # as typed, with its λ
    accuracy: float
    gap: float  # mean confidence minus accuracy
    ece: float
    floor: float
    brier: float | None = None
    images: int
    intervals: dict[str, tuple[float, float]] = {}
    against_tpt: dict[str, tuple[float, float, float]] = {}  # difference, low, high

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
    seeds: tuple[int, ...]
    methods: tuple[ClipMethod, ...]
    note: str = ""

    @property
    def text(self) -> str:
        """One line: accuracy and gap of the methods that decide the question."""
        shown = [m for m in self.methods if parse_label(m.method).base in IN_LINE]
        images, sets = sum(self.datasets.values()), len(self.datasets)
        where = f"{images:,} images of {sets} data set{'s' * (sets != 1)}"
        return f"Real CLIP ({self.model}, {where}): {'; '.join(m.text for m in shown)}."

    def difference_text(self, first: str, second: str, *, metric: str) -> str:
        """Write a difference to TPT, or TPT's to another method, as the reports do."""
        known = {parse_label(m.method).name: m.against_tpt for m in self.methods}
        name, sign = (first, 1) if second == "tpt" else (second, -1)
        found = known.get(name, {}).get("gap" if metric == "signed_gap" else metric)
        if found is None:
            return "—"
        ends = sorted(sign * end for end in found[1:])
        texts = (brief_text(value, METRICS[metric]) for value in ends)
        return f"{brief_text(sign * found[0], METRICS[metric], signed=True)} [{', '.join(texts)}]"


def load_clip_record() -> ClipRecord | None:
    file = files("dtpt.report") / PACKAGED
    return ClipRecord.model_validate_json(file.read_bytes()) if file.is_file() else None
