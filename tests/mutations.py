"""The mutants of a source: mutmut's operators, applied to one node at a time."""

import difflib
from dataclasses import dataclass

import libcst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, PositionProvider
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
    """Collects (node, mutated node, line, function, where its bytes are)."""

    METADATA_DEPENDENCIES = (PositionProvider, ByteSpanPositionProvider)

    def __init__(self):
        self.found, self.names, self.assigned = [], [], False

    def on_visit(self, node):
        if _left_out(node):
            return False
        if isinstance(node, libcst.SimpleStatementLine) and not self.names:
            self.assigned = any(isinstance(each, libcst.Assign) for each in node.body)
        named = isinstance(node, (libcst.FunctionDef, libcst.ClassDef))
        if named:
            self.names.append(node)
        inside = any(isinstance(each, libcst.FunctionDef) for each in self.names)
        in_class = any(isinstance(each, libcst.ClassDef) for each in self.names)
        if inside or (not in_class and self.assigned):
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
                line = position.start.line if position else 0
                span = self.get_metadata(ByteSpanPositionProvider, node, None)
                for mutated in operator(node):
                    self.found.append((node, mutated, line, self._function(), span))


def _replaced(module, raw, node, mutated, span):
    """The source `raw` of `module` with `mutated` in place of `node`, whose bytes are at `span`."""
    if span:
        end = span.start + span.length
        if raw[span.start : end].decode() == module.code_for_node(node):
            return (raw[: span.start] + module.code_for_node(mutated).encode() + raw[end:]).decode()
    return module.deep_replace(node, mutated).code  # many times as slow


def mutants(source):
    """Every Mutant of a module's source, in the order of its lines."""
    wrapper = MetadataWrapper(libcst.parse_module(source))
    finder = _Finder()
    wrapper.visit(finder)
    lines, seen, raw = source.splitlines(), {source}, source.encode()
    for node, mutated, line, function, span in finder.found:
        code = _replaced(wrapper.module, raw, node, mutated, span)
        if code in seen:
            continue
        seen.add(code)
        changes = [each for each in difflib.ndiff(lines, code.splitlines()) if each[:2] in ("- ", "+ ")]
        sides = [" ".join(each[2:].strip() for each in changes if each[0] == sign) for sign in "-+"]
        yield Mutant(code, line, function, *sides)
