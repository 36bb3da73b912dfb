"""The mutants of a source: mutmut's operators, applied to one node at a time."""

import difflib
from dataclasses import dataclass

import libcst
from libcst.metadata import MetadataWrapper, PositionProvider
from mutmut.mutation.mutators import mutation_operators


@dataclass
class Mutant:
    """One mutant: its whole source, where it differs, and in which function ('' on the module's level)."""

    source: str
    line: int
    function: str
    before: str
    after: str

    def row(self):
        """Its columns in a table."""
        return {"line": self.line, "function": self.function, "before": self.before, "after": self.after}


def _is_words(node):
    """Whether a string is a sentence, or a part of one: what it says is no behaviour."""
    return isinstance(node, libcst.SimpleString) and " " in node.value.strip("\"' ")


def _left_out(node):
    """Nodes that are not mutated, nor anything in them."""
    if isinstance(node, (libcst.Annotation, libcst.Decorator, libcst.Import, libcst.ImportFrom)):
        return True
    return isinstance(node, libcst.Expr) and isinstance(
        node.value, (libcst.SimpleString, libcst.ConcatenatedString)
    )


class _Finder(libcst.CSTVisitor):
    """Collects (node, mutated node, line, function)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self):
        self.found, self.names, self.depth = [], [], 0

    def on_visit(self, node):
        if _left_out(node):
            return False
        named = isinstance(node, (libcst.FunctionDef, libcst.ClassDef))
        if named:
            self.names.append(node)
        inside = any(isinstance(each, libcst.FunctionDef) for each in self.names)
        in_class = any(isinstance(each, libcst.ClassDef) for each in self.names)
        if inside or not in_class:
            self._mutate(node, inside)
        return True

    def on_leave(self, original):
        if self.names and original is self.names[-1]:
            self.names.pop()

    def _function(self):
        """The qualified name of the outermost function, '' outside of any."""
        path = []
        for each in self.names:
            path.append(each.name.value)
            if isinstance(each, libcst.FunctionDef):
                return ".".join(path)
        return ""

    def _mutate(self, node, inside):
        if _is_words(node) or (
            not inside and isinstance(node, (libcst.BaseString, libcst.Call, libcst.Assign))
        ):
            return
        for kind, operator in mutation_operators:
            if isinstance(node, kind):
                position = self.get_metadata(PositionProvider, node, None)
                for mutated in operator(node):
                    self.found.append(
                        (node, mutated, position.start.line if position else 0, self._function())
                    )


def mutants(source):
    """Every Mutant of a module's source, in the order of its lines."""
    wrapper = MetadataWrapper(libcst.parse_module(source))
    finder = _Finder()
    wrapper.visit(finder)
    lines, seen = source.splitlines(), {source}
    for node, mutated, line, function in finder.found:
        code = wrapper.module.deep_replace(node, mutated).code
        if code in seen:
            continue
        seen.add(code)
        changes = [each for each in difflib.ndiff(lines, code.splitlines()) if each[:2] in ("- ", "+ ")]
        sides = [" ".join(each[2:].strip() for each in changes if each[0] == sign) for sign in "-+"]
        yield Mutant(code, line, function, *sides)
