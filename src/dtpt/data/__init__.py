"""Data sets: the paper's fifteen, the embedded emoji benchmark, and anybody's own images."""

from dtpt.data.dataset import Dataset, FileRef, ImageRef, Sample, fingerprint

__all__ = ["Dataset", "FileRef", "ImageRef", "Sample", "fingerprint"]
