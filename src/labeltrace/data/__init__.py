"""Datasets, label noise and views: what a run is trained on."""

from labeltrace.data import cifar, cifar_n, digits, noise_instance, noise_maps  # noqa: F401  (importing registers)
from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset, DatasetError, Split, datasets, load_dataset
from labeltrace.data.noise import add_noise, noises
from labeltrace.data.noise_record import NoiseRecord, load_noise, save_noise
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
