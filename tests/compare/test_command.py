import json
import subprocess
import sys

import pytest
from compare.results import serve, write

from llm_measured.compare import command, limits


def folders(tmp_path, slow=1.0, **stated):
    a = write(tmp_path / "a", [serve(k, scatter=0.01, **stated) for k in range(3)])
    b = write(tmp_path / "b", [serve(50 + k, slow=slow, scatter=0.01, **stated) for k in range(3)])
    return a, b


def test_files_of_both_sides_stand_around_two_hyphens(tmp_path, capsys):
    a, b = folders(tmp_path, 1.3)
    files = [f"{a}/{k}.json" for k in range(3)], [f"{b}/{k}.json" for k in range(3)]
    assert command.main([*files[0], "--", *files[1], "--fail-if", "tpot_mean > +10%"]) == 1
    assert "passed, significantly" in capsys.readouterr().out
    assert command.main([a, b, "--fail-if", "tpot_mean > +60%"]) == 0
    assert command.main([a, b]) == 0, "slower without a limit is no failure"


@pytest.mark.parametrize("words", [["a"], ["a", "b", "c"], ["a", "--"], ["a", "--", "b", "--", "c"]])
def test_a_mistaken_command_line_ends_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(words)
    assert ended.value.code == 2 and "usage" in capsys.readouterr().err


def test_unreadable_and_not_comparable_end_with_2(tmp_path, capsys):
    a, b = folders(tmp_path)
    (tmp_path / "empty.json").write_text("")
    assert command.main([a, str(tmp_path / "empty.json")]) == 2
    assert command.main([a, b, "--fail-if", "ttft > 10"]) == 2
    assert command.main([a, b, "--margin", "5"]) == 2
    assert "between 0 and 1" in capsys.readouterr().err
    other = write(tmp_path / "c", [serve(9, model_id="other-7b")])
    assert command.main([a, other]) == 2


def test_names_in_a_file_are_escaped_in_markdown(tmp_path):
    bad = "<script>alert(1)</script> [x](https://evil.example) @someone | `a`"
    a, b = folders(tmp_path, quantization=bad)
    other = write(tmp_path / "c", [serve(70 + k, quantization=bad + "2") for k in range(3)])
    command.main([a, other, "--markdown", str(tmp_path / "report.md")])
    shown = (tmp_path / "report.md").read_text()
    assert not any(one in shown for one in ("<script", "[x](", "@someone", "https://"))


def test_json_goes_to_the_terminal_alone_when_asked(tmp_path, capsys):
    a, b = folders(tmp_path)
    assert command.main([a, b, "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["version"] == 1


def test_the_command_imports_neither_statistics_nor_pages_nor_checks():
    """What would make its start slow: scipy.stats and jinja2 take half a second each."""
    code = "import sys, llm_measured.compare.command; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert not {"scipy.stats", "jinja2", "ijson", "statsmodels", "llm_measured.published"} & set(loaded)


@pytest.mark.parametrize("text", ["ttft_p90 > 10", "speed > 10%", "ttft_p90 > -10%", "ttft_p90 < -100%"])
def test_what_is_no_limit_is_named(text):
    with pytest.raises(ValueError, match="--fail-if"):
        limits.parse(text)
