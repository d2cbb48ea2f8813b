"""Datasets, label noise and views: what a run is trained on."""

from labeltrace.data import cifar, digits  # noqa: F401  (importing a loader registers it)
from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset, DatasetError, Split, datasets, load_dataset
from labeltrace.data.noise import NoiseRecord, add_noise, load_noise, noises, save_noise
from labeltrace.data.views import FeatureViews, ImageViews, Views

__all__ = [
    "Dataset",
    "DatasetError",
    "FeatureViews",
    "ImageViews",
    "NoiseRecord",
    "Split",
    "Views",
    "add_noise",
    "datasets",
    "from_arrays",
    "load_dataset",
    "load_noise",
    "noises",
    "save_noise",
]
