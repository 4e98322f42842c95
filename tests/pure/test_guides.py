"""The Markdown guides: links resolve, paths exist, tables are complete, the README is short."""

import dataclasses
import pathlib
import posixpath
import re
import subprocess
import sys

import pytest
from guides import BLOCK, HEADING, ROOT, anchors, blocks, guides, links, section, table_rows, text_of
from heavy_packages import LIGHT_INSTALL

from erag_ray.analyses.every import all_tables
from erag_ray.annotators import ANNOTATORS
from erag_ray.config.job import JobConfig
from erag_ray.extras.papers.dual_labels import DUAL_LABELS
from erag_ray.extras.readers.agreement import READER_AGREEMENTS, READER_INTERACTIONS
from erag_ray.extras.sequential_test.stage import INTERIM_ANALYSES
from erag_ray.extras.train.data.examples import EXAMPLES
from erag_ray.retrieve import RETRIEVERS

NAMES = [str(file.relative_to(ROOT)) for file in guides()]
LONG = 120
PATH = re.compile(r"`((?:erag_ray|jobs|notebooks|tests)/[\w./-]+)`")
COMMAND_PATH = re.compile(r"(?:python|pytest) ((?:jobs|notebooks|tests)/\S+\.py)")


@pytest.mark.parametrize("name", NAMES)
def test_every_link_and_anchor_resolves(name: str) -> None:
    for target in links(text_of(name)):
        if not re.match(r"https?://", target):
            path, _, anchor = target.partition("#")
            file = (ROOT / name).parent / path if path else ROOT / name
            assert file.exists(), f"{name}: {target} is not there"
            known = anchors(file.read_text(encoding="utf-8")) if anchor else {""}
            assert anchor in known, f"{name}: no heading for {target}"


@pytest.mark.parametrize("name", NAMES)
def test_every_path_in_a_guide_exists(name: str) -> None:
    paths = {*PATH.findall(text_of(name)), *COMMAND_PATH.findall(text_of(name))}
    assert not [path for path in sorted(paths) if not (ROOT / path).exists()]


@pytest.mark.parametrize("name", NAMES)
def test_a_long_guide_has_a_table_of_contents_that_names_its_sections(name: str) -> None:
    text = text_of(name)
    if len(text.splitlines()) > LONG and name != "README.md":
        listed = {target.removeprefix("#") for target in links(section(name, "Contents"))}
        assert anchors(text, level=2) - {"contents"} <= listed


@pytest.mark.parametrize("name", NAMES)
def test_no_code_in_a_line_is_broken_over_two(name: str) -> None:
    lines = BLOCK.sub("", text_of(name)).splitlines()
    assert not [line for line in lines if line.count("`") % 2]


@pytest.mark.parametrize("name", [name for name in NAMES if name != "notebooks/LOG.md"])
def test_a_guide_has_at_most_250_lines(name: str) -> None:
    assert len(text_of(name).splitlines()) <= (200 if name == "README.md" else 250)


def test_the_readme_links_to_every_guide() -> None:
    linked = {target.partition("#")[0] for target in links(text_of("README.md"))}
    assert {*NAMES} - {"README.md", "notebooks/LOG.md"} <= linked


@pytest.mark.parametrize(
    ("wish", "first", "second"),
    [
        # I have a LangChain retriever and a list of questions
        ("LangChain", "kind: langchain, object:", "`questions` | mappings with `question`"),
        # I want to know what this will cost on 8 A100s
        ("8 A100s", "--price_per_hour", "pairs a second"),
        # my CI should fail when the chunker gets worse
        ("CI", "--splitter whitespace40", "not settled"),
    ],
)
def test_the_readme_answers_a_wish_in_two_clicks(wish: str, first: str, second: str) -> None:
    (row,) = [line for line in section("README.md", "I want to ...").splitlines() if wish in line]
    (target,) = links(row)
    page = section_at(target)
    assert first in page
    guides_linked = [link for link in links(page) if re.search(r"\.md(#|$)", link)]
    further = [
        section_at(posixpath.normpath(posixpath.join(posixpath.dirname(target), link)))
        for link in guides_linked
    ]
    assert any(second in text for text in [page, *further])


def section_at(target: str) -> str:
    """The section of a guide that a link from the root opens, or the whole guide."""
    name, _, anchor = target.partition("#")
    titles = [
        title
        for _, title in HEADING.findall(BLOCK.sub("", text_of(name)))
        if anchors(f"# {title}") == {anchor}
    ]
    return section(name, titles[0]) if titles else text_of(name)


def test_the_readmes_python_example_runs_as_written_without_the_packages_of_models(
    tmp_path: pathlib.Path,
) -> None:
    (body,) = blocks("python", text_of("README.md"))
    body += 'print(result.means.filter(annotator="end_to_end", run_id="bm25")["mean"].to_list())'
    words = [sys.executable, "-c", LIGHT_INSTALL + body]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("Which retriever serves the reader function my-llm best?\n")
    assert done.stdout.endswith("[1.0]\n")


def words_of(name: str, title: str, column: int = 0) -> set[str]:
    """The names in a column of the tables of a section."""
    rows = table_rows(section(name, title))
    return {word for row in rows for word in re.findall(r"`(\w+)`", row[column])}


def test_the_map_lists_every_table() -> None:
    of_jobs = {
        schema.name
        for schema in (DUAL_LABELS, EXAMPLES, INTERIM_ANALYSES, READER_AGREEMENTS, READER_INTERACTIONS)
    }
    assert words_of("erag_ray/README.md", "Tables") == set(all_tables()) | of_jobs


def test_the_guide_of_jobs_lists_every_key_of_the_main_job() -> None:
    keys = {field.name for field in dataclasses.fields(JobConfig)}
    assert words_of("jobs/README.md", "Keys by topic", column=1) == keys


def test_the_guide_of_jobs_lists_every_job_annotator_and_retriever() -> None:
    rows = table_rows(section("jobs/README.md", "Jobs and recipes"))
    jobs = {file.name for file in (ROOT / "jobs").glob("*.py")}
    assert {row[0].strip("`") for row in rows if row[0].endswith(".py`")} == jobs
    assert set(ANNOTATORS) <= words_of("jobs/LABELS.md", "Annotators")
    assert {*RETRIEVERS} - {"rerank by"} <= words_of("jobs/RETRIEVERS.md", "Kinds of retrievers")
