"""Where a run computes: device and precision, as Lightning Fabric takes them."""

from __future__ import annotations

import atexit
import logging
import platform

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments import TorchElasticEnvironment
from lightning_fabric.strategies import DDPStrategy
from torch import nn

from labeltrace.engine.config import RunConfig
from labeltrace.engine.parallel import World
from labeltrace.errors import InputError


class PlainNetworks(DDPStrategy):
    """Fabric's processes and devices without the wrapper around networks: see `labeltrace.engine.parallel`."""

    def setup_module(self, module: nn.Module) -> nn.Module:  # type: ignore[override]
        """Leave a network as it is."""
        return module


def make_fabric(config: RunConfig, place: World | None = None) -> Fabric:
    """Return the Fabric of a run; of several ranks, each on its own device, joined in a process group.

    Raises:
        InputError: a device that does not exist here, an unknown device or precision.
    """
    place = place or World()
    name, _, number = config.device.partition(":")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name not in ("cpu", "cuda") or (number and not number.isdigit()):
        raise InputError(f"device: {config.device!r}, expected auto, cpu, cuda or cuda:N")
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError(f"device: {config.device!r} asked for, but torch finds no CUDA device here; say --device cpu")
    if name == "cuda" and number and int(number) >= torch.cuda.device_count():
        raise InputError(f"device: {config.device!r} asked for, but there are {torch.cuda.device_count()} CUDA devices")
    if place.size % place.local_size:
        raise InputError(f"torchrun: {place.local_size} of {place.size} ranks here, expected as many on every machine")
    if name == "cuda" and number and place.size > 1:
        raise InputError(
            f"device: {config.device!r} given to {place.size} ranks, each of which needs its own; say cuda"
        )
    if name == "cuda" and place.local_size > torch.cuda.device_count():
        raise InputError(
            f"device: {place.local_size} ranks on this machine, but {torch.cuda.device_count()} CUDA devices; "
            "start as many, or say --device cpu"
        )
    precision = config.precision
    if precision not in ("auto", "fp32", "bf16"):
        raise InputError(f"precision: {precision!r}, expected auto, fp32 or bf16")
    if precision == "auto":
        precision = "bf16" if name == "cuda" and torch.cuda.is_bf16_supported() else "fp32"
    if name == "cuda":  # shapes are fixed, so the fastest algorithm of each is looked for once
        torch.backends.cudnn.benchmark = not torch.are_deterministic_algorithms_enabled()
    arithmetic = "bf16-mixed" if precision == "bf16" else "32-true"
    if place.size == 1:
        devices = [int(number)] if number and name == "cuda" else 1
        return Fabric(accelerator=name, devices=devices, precision=arithmetic)  # type: ignore[arg-type]
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # else it says that it starts
    fabric = Fabric(
        accelerator=name,
        devices=place.local_size,
        num_nodes=place.size // place.local_size,
        strategy=PlainNetworks(),
        plugins=TorchElasticEnvironment(),
        precision=arithmetic,  # type: ignore[arg-type]
    )
    fabric.launch()
    atexit.unregister(_leave)
    atexit.register(_leave)  # Fabric does so for nccl alone
    return fabric


def _leave() -> None:
    """End the process group while Python is whole: threads of gloo that outlive it abort a finished process."""
    if dist.is_initialized():
        dist.destroy_process_group()


def device_name(device: torch.device) -> str:
    """Return the name of a device, for people.

    >>> device_name(torch.device("cpu")).startswith("CPU")
    True
    """
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU ({platform.machine()})"
