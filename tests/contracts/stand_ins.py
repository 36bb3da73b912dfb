"""Modules that stand in for what is not installed, so that a package's parsers and request models import on a
machine without a GPU: kernels, compiled parts, and libraries that neither a parser nor a model needs.

A name inside of the package itself that is missing stays an error, unless its wheel has it compiled: that a
module has moved is what a contract must find.
"""

import importlib.abc
import importlib.machinery
import sys
import types

# Whoever imports one of these looks whether such a device is there.
DEVICES = {"amdsmi", "intel_extension_for_pytorch", "libtpu", "pynvml", "torch_npu", "torch_xla", "tpu_info"}


class _Meta(type):
    """A class of which everything can be had: attributes, calls, subscripts, unions, iteration."""

    def __getattr__(cls, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _class(name)

    def __call__(cls, *arguments, **named):
        if "_stands_in" not in cls.__dict__:  # a class of the package that inherits from one
            return super().__call__()
        if len(arguments) == 1 and not named and callable(arguments[0]):
            return arguments[0]  # as a decorator
        return super().__call__()

    def __getitem__(cls, item):
        return cls

    def __or__(cls, other):
        return cls

    __ror__ = __or__

    def __iter__(cls):
        return iter(())


class _Anything(metaclass=_Meta):
    _stands_in = True

    def __init_subclass__(cls, **named):
        super().__init_subclass__()

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _class(name)

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not named else self

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        return False

    def __iter__(self):
        return iter(())

    @classmethod
    def __get_pydantic_core_schema__(cls, source, handler):
        from pydantic_core import core_schema

        return core_schema.any_schema()


def _class(name):
    return _Meta(name, (_Anything,), {"_stands_in": True})


class Module(types.ModuleType):
    """A module that has every name."""

    __path__: list = []
    __version__ = "0"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        value = _class(name)
        setattr(self, name, value)
        return value


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: whatever no other has found, but for modules of `package` that are not `compiled`."""

    def __init__(self, package, compiled):
        self.package, self.compiled, self.made, self.tops = package, compiled, [], set()

    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        # Of Python's own modules one is missing that belongs to another system.
        if top in sys.stdlib_module_names or top == self.package and name not in self.compiled:
            return None
        if top in DEVICES:
            return None
        # What an installed library would like to have is its own affair.
        if _asker() not in {self.package, *self.tops}:
            return None
        self.tops.add(top)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        self.made.append(spec.name)
        return Module(spec.name)

    def exec_module(self, module):
        pass


def _asker():
    """Top-level name of the module that imports; empty where somebody only asks whether a module is there
    (`importlib.util.find_spec`)."""
    frame = sys._getframe(2)
    while frame:
        name = frame.f_globals.get("__name__", "")
        if name == "importlib.util" and frame.f_code.co_name == "find_spec":
            return ""
        if not name.startswith("importlib"):
            return name.partition(".")[0]
        frame = frame.f_back
    return ""


def installed(package, compiled=()):
    """Let stand-ins be found from here on; returns the finder, whose `made` lists their names."""
    finder = _Finder(package, set(compiled))
    sys.meta_path.append(finder)
    return finder
