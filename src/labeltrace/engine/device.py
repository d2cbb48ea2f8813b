"""Where a run computes: device and precision, as Lightning Fabric takes them."""

from __future__ import annotations

import platform

import torch
from lightning_fabric import Fabric

from labeltrace.engine.config import RunConfig
from labeltrace.errors import InputError


def make_fabric(config: RunConfig) -> Fabric:
    """Return the Fabric of a run.

    Raises:
        InputError: a device that does not exist here, an unknown device or precision.
    """
    name, _, number = config.device.partition(":")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise InputError(f"device: {config.device!r}, expected auto, cpu, cuda or cuda:N")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: {config.device!r} asked for, but torch finds no CUDA device here; say --device cpu")
    if name == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise InputError(f"device: {config.device!r} asked for, but there are {torch.cuda.device_count()} CUDA devices")
    precision = config.precision
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"precision: {precision!r}, expected auto, fp32 or bf16")
    if precision == "auto":
        precision = "bf16" if name == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if name == "cuda":  # shapes are fixed, so the fastest algorithm of each is looked for once
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    return Fabric(
        accelerator=name,
        devices=[int(number)] if number and name == "cuda" else 1,
        precision="bf16-mixed" if precision == "bf16" else "32-true",
    )


def device_name(device: torch.device) -> str:
    """Return the name of a device, for people.

    >>> device_name(torch.device("cpu")).startswith("CPU")
    True
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"
