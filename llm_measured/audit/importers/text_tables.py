"""Every table in a text: of Markdown, of GenAI-Perf's and evalscope's boxes, of grids drawn with + and -, of
SQL's INSERT."""

import csv
import re

BARS = str.maketrans("┃│║｜", "||||")
RULE = re.compile(r"^[\s|:+=\-─━═┄┏┓┗┛┡┩┌┐└┘├┤┬┴┼╇╈┳┻╋╭╮╰╯╞╪╡╘╧╛╒╤╕╟╢╠╣╔╗╚╝╦╩╬]+$")
INSERT = re.compile(r"INSERT INTO \S+ *\(([^()]+)\) *VALUES *\((.*)\);?", re.I)
MOST_TABLES = 200  # of a text
MOST_COLUMNS = 200  # of a table


def tables(text: str) -> list[list[list[str]]]:
    """The tables of a text, each a list of rows of cells, its header first: lines with bars between their
    cells, of which one is a rule."""
    found, rows, ruled = [], [], False
    for line in [*text.translate(BARS).splitlines(), ""]:
        plain = line.strip().lstrip("> ").strip()
        rule = bool(plain) and bool(RULE.match(plain)) and re.search(r"[-=─━═]{2,}", plain) is not None
        if rule and rows and not ruled and plain[0] in "┏┌╒╔╭+":
            rows, ruled = [], True  # a box begins: what stood above it is a title
        elif rule and (rows or "|" not in plain):
            ruled = True
        elif "|" in plain and not rule:
            rows.append(_cells(plain))
        elif not plain and rows and not ruled:
            rows = []
        else:
            _close(found, rows, ruled)
            rows, ruled = [], False
    return (found + _inserted(text))[:MOST_TABLES]


def _inserted(text: str) -> list[list[list[str]]]:
    """The tables that INSERT statements of one line each fill, one for each list of columns."""
    found: dict[str, list[list[str]]] = {}
    for line in text.splitlines():
        if match := INSERT.fullmatch(line.strip()):
            header = [name.strip(' `"') for name in match[1].split(",")]
            cells = next(csv.reader([match[2]], quotechar="'", skipinitialspace=True))
            found.setdefault(match[1], [header]).append(cells)
    return list(found.values())


def _close(found: list, rows: list[list[str]], ruled: bool) -> None:
    """Add the `rows` to the tables where they are one: a rule, a header and a row, of two columns or more."""
    if not ruled or len(rows) < 2 or len(rows[0]) < 2:
        return
    width = min(len(rows[0]), MOST_COLUMNS)
    made: list[list[str]] = [rows[0][:width]]
    for row in rows[1:]:
        row = (row + [""] * width)[:width] if len(row) <= width or not any(row[width:]) else row
        if len(made) > 1 and row[0] and not any(row[1:]):  # a name that goes on in the next line of a box
            made[-1][0] = f"{made[-1][0]} {row[0]}".strip()
        elif any(row):
            made.append(row)
    if len(made) > 1:
        found.append(made)


def _cells(line: str) -> list[str]:
    inner = line[1:] if line.startswith("|") else line
    inner = inner[:-1] if inner.endswith("|") and not inner.endswith("\\|") else inner
    parts = re.split(r"(?<!\\)\|", inner)
    return [_plain(part) for part in parts]


def _plain(cell: str) -> str:
    """A cell without the marks of Markdown and HTML around its text."""
    linked = re.sub(r"\[([^\]]{1,200})\]\([^)]{1,500}\)", r"\1", cell.strip())
    bare = re.sub(r"</?[a-zA-Z][^>]{0,80}>", " ", linked)
    return re.sub(r"^[\s*`_~]+|[\s*`]+$", "", bare.replace("\\|", "|"))
