"""Data sets: the paper's fifteen, the embedded emoji benchmark, and people's own images."""

from dtpt.data.catalog import FAMILIES, family_title
from dtpt.data.check import DatasetSummary, check_dataset, list_datasets
from dtpt.data.dataset import Dataset, FileRef, ImageRef, Sample, fingerprint
from dtpt.data.loading import DATASETS, GROUPS, expand_names, load_dataset
from dtpt.data.openmoji import PRESENTATIONS, OpenMojiRef

__all__ = [
    "DATASETS",
    "FAMILIES",
    "GROUPS",
    "PRESENTATIONS",
    "Dataset",
    "DatasetSummary",
    "FileRef",
    "ImageRef",
    "OpenMojiRef",
    "Sample",
    "check_dataset",
    "expand_names",
    "family_title",
    "fingerprint",
    "list_datasets",
    "load_dataset",
]
