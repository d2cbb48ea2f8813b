"""A name for each thing that can be chosen by name: learners, models, datasets, noises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from labeltrace.errors import InputError, nearest

T = TypeVar("T")


class Registry(Generic[T]):
    """Names of one kind of thing, in the order they were registered.

    >>> fruits = Registry[str]("fruit")
    >>> _ = fruits.add("apple", "Braeburn", about="a red one")
    >>> fruits["apple"], fruits.about("apple")
    ('Braeburn', 'a red one')
    >>> fruits["aple"]
    Traceback (most recent call last):
    labeltrace.errors.InputError: unknown fruit 'aple': did you mean 'apple'?
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}
        self._about: dict[str, str] = {}

    def add(self, name: str, entry: T, about: str) -> T:
        """Register `entry` as `name`, with one line about it for people; a name is taken once."""
        if name in self._entries:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._entries[name], self._about[name] = entry, about
        return entry

    def register(self, name: str, about: str) -> Callable[[T], T]:
        """Register the decorated class or function as `name`."""
        return lambda entry: self.add(name, entry, about)

    def about(self, name: str) -> str:
        """Return the line about the entry `name`."""
        return self._about[name]

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise InputError(f"unknown {self.kind} {name!r}: {nearest(name, self._entries)}")
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)
