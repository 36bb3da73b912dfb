"""A mutant's source put into a module that is imported already: its functions get the mutant's code."""

import ast
import importlib
import sys
import threading
import types


def trace(look):
    """Let `look` see every call of a Python function, in every thread; None: no longer."""
    sys.settrace(look)
    threading.settrace(look)


def _codes(code):
    """Every code object in `code`, by qualified name, those inside of functions left out."""
    found = {}
    for each in code.co_consts:
        if isinstance(each, types.CodeType):
            found.setdefault(each.co_qualname, each)
            if "<locals>" not in each.co_qualname:
                found |= {name: one for name, one in _codes(each).items() if "<locals>" not in name}
    return found


def _functions(holder, module):
    """[(holder, name, function)] of what `holder`, a module or class, defines in `module`."""
    for name, value in list(vars(holder).items()):
        if isinstance(value, type) and value.__module__ == module.__name__ and holder is module:
            yield from _functions(value, module)
        if isinstance(value, property):
            value = value.fget
        if isinstance(value, (staticmethod, classmethod)):
            value = value.__func__
        while hasattr(value, "__wrapped__"):
            if hasattr(value, "cache_clear"):
                value.cache_clear()
            value = value.__wrapped__
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == module.__file__:
            yield value


def _defaults(tree):
    """{qualified name: ast.arguments} of functions and methods."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = node.args
        if isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    found[f"{node.name}.{each.name}"] = each.args
    return found


def _value(node, module):
    return eval(compile(ast.Expression(node), module.__file__, "eval"), module.__dict__)


def _constants(module, tree, before):
    """Give module-level names whose value reads otherwise now their new value, wherever it is imported."""
    old = {ast.unparse(node) for node in before.body if isinstance(node, ast.Assign)}
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node) not in old:
            names = {
                each.id for target in node.targets for each in ast.walk(target) if isinstance(each, ast.Name)
            }
            held = {name: module.__dict__.get(name) for name in names}
            exec(compile(ast.Module([node], []), module.__file__, "exec"), module.__dict__)
            for user in list(sys.modules.values()):
                for name in (
                    names & vars(user).keys() if getattr(user, "__name__", "").startswith("bench.") else ()
                ):
                    if user is not module and vars(user)[name] is held[name]:
                        setattr(user, name, vars(module)[name])


def put(path, source):
    """Let the module of the file `path` do what `source` says; SyntaxError where that is no Python."""
    module = importlib.import_module(path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    with open(module.__file__ + ".original") as file:
        before = ast.parse(file.read())
    tree = ast.parse(source)
    codes = _codes(compile(source, module.__file__, "exec"))
    _constants(module, tree, before)
    arguments = _defaults(tree)
    for function in _functions(module, module):
        name = function.__qualname__
        if name in codes and len(codes[name].co_freevars) == len(function.__code__.co_freevars):
            function.__code__ = codes[name]
        if name in arguments:
            args = arguments[name]
            function.__defaults__ = tuple(_value(each, module) for each in args.defaults) or None
            function.__kwdefaults__ = {
                arg.arg: _value(each, module) for arg, each in zip(args.kwonlyargs, args.kw_defaults) if each
            } or None
