"""How many files run on the way of a published number: from its raw file to the checked table."""

from walking import executed

from llm_measured.published import build, checks, committed, names

TO_TABLE = 12  # a ceiling, which only falls
SOURCE = "llm-energy-benchmark"


def test_a_published_row_runs_through_few_files_from_its_raw_file_to_the_table():
    names._rules.cache_clear()

    def walk():
        found = build.imported(SOURCE, build.folder_of(SOURCE))
        table = checks.judged(names.looked_up(build.typed(found.rows)))
        return committed.text(table)

    ran, text = executed(walk)
    assert text.count("\n") > 200 and "llm_measured/published/sources/_columns.py" in ran
    assert 4 <= len(ran) <= TO_TABLE, "\n".join(sorted(ran))
