"""Data sets: the paper's fifteen, the embedded emoji benchmark, and anybody's own images."""

from dtpt.data.dataset import Dataset, FileRef, ImageRef, Sample, fingerprint
from dtpt.data.openmoji import load_openmoji

__all__ = ["Dataset", "FileRef", "ImageRef", "Sample", "fingerprint", "load_openmoji"]
