"""Datasets, label noise and views: what a run is trained on."""

from labeltrace.data import sets  # noqa: F401  (importing registers)
from labeltrace.data.arrays import from_arrays
from labeltrace.data.dataset import Dataset, DatasetError, Split, datasets
from labeltrace.data.decode import BadImage
from labeltrace.data.images import ImageFiles, Images
from labeltrace.data.load import load_dataset
from labeltrace.data.noise import instance, maps  # noqa: F401  (importing registers)
from labeltrace.data.noise.apply import apply_noise_file
from labeltrace.data.noise.foreign import load_foreign
from labeltrace.data.noise.kinds import add_noise, noises
from labeltrace.data.noise.make import make_noise
from labeltrace.data.noise.record import NoiseRecord, load_noise, save_noise
from labeltrace.data.options import ReadOptions
from labeltrace.data.own.torch_dataset import from_torch
from labeltrace.data.prepare import Skipped, prepare
from labeltrace.data.views import FeatureViews, ImageViews, Views

__all__ = [
    "BadImage",
    "Dataset",
    "DatasetError",
    "FeatureViews",
    "ImageFiles",
    "ImageViews",
    "Images",
    "NoiseRecord",
    "ReadOptions",
    "Skipped",
    "Split",
    "Views",
    "add_noise",
    "apply_noise_file",
    "datasets",
    "from_arrays",
    "from_torch",
    "load_dataset",
    "load_foreign",
    "load_noise",
    "make_noise",
    "noises",
    "prepare",
    "save_noise",
]
