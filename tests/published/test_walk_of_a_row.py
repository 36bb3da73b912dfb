"""How many files run on the way of a published number: from its raw file to the checked table."""

import subprocess
import sys

from walking import executed

from llm_measured.published import build, checks, names

TO_TABLE = 12  # a ceiling, which only falls
SOURCE = "llm-energy-benchmark"


def test_a_published_row_runs_through_few_files_from_its_raw_file_to_the_table():
    names._rules.cache_clear()

    def walk():
        found = build.imported(SOURCE, build.folder_of(SOURCE))
        table = checks.judged(names.looked_up(build.typed(found.rows)))
        return build.table_text(table)

    ran, text = executed(walk)
    assert text.count("\n") > 200 and "llm_measured/published/sources/_columns.py" in ran
    assert 4 <= len(ran) <= TO_TABLE, "\n".join(sorted(ran))


def test_a_question_imports_no_importer():
    """A missing importer then loses no answer, and 40 of them take no time; shared readers begin with _."""
    code = (
        "import sys; from llm_measured.predict import command; command.main(['RTX 4090', 'llama-3.1-8b', 'Q4_K_M']); "
        "print([m for m in sys.modules if m.startswith('llm_measured.published.sources.') and '._' not in m])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("[]")
    assert "Expected:" in done.stdout
