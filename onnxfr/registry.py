"""One typed registry for everything that can be named: attacks, corruptions, evaluators, operators.

Registering is a decorator in the thing's own file; ``discover`` imports the files of a package so
that adding a file is all it takes. A duplicate is an error, an unknown name suggests near ones.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from onnxfr.errors import DuplicateName, UnknownName, naming

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to things of one kind, filled by the modules of ``package`` on first use."""

    def __init__(self, kind: str, package: str | None = None) -> None:
        self.kind = kind
        self._package = package
        self._items: dict[str, T] = {}
        self._discovered = package is None

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that files its argument under ``name``."""

        def decorate(item: T) -> T:
            if name in self._items:
                raise DuplicateName(f"two {self.kind}s are called {name!r}; rename one")
            self._items[name] = item
            return item

        return decorate

    def get(self, name: str) -> T:
        """Return the item called ``name`` or raise with suggestions."""
        if name not in self._items:
            self.discover()
        if name not in self._items:
            near = difflib.get_close_matches(name, self._items, n=3)
            hint = f"; did you mean {', '.join(near)}?" if near else ""
            raise UnknownName(f"no {self.kind} is called {name!r}{hint}")
        return self._items[name]

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self.discover()
        return sorted(self._items)

    def items(self) -> Iterator[tuple[str, T]]:
        """Iterate over (name, item), sorted by name."""
        return iter([(name, self._items[name]) for name in self.names()])

    def __contains__(self, name: object) -> bool:
        self.discover()
        return name in self._items

    def discover(self) -> None:
        """Import every module below the registry's package once."""
        if self._discovered or self._package is None:
            return
        self._discovered = True
        root = importlib.import_module(self._package)
        for module in pkgutil.walk_packages(root.__path__, prefix=f"{self._package}."):
            with naming(f"the module {module.name}", module.name):
                importlib.import_module(module.name)
