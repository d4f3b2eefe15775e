"""The docs agree with the code."""

import contextlib
import importlib.util
import re
from pathlib import Path

import pytest

from dovetail.kinds import FIELDS, KINDS, STAGES

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_the_glossary_is_the_table_of_fields():
    text = (ROOT / "docs" / "glossary.md").read_text()
    for name, field in FIELDS.items():
        assert f"| `{name}` | {field.shape} | {field.stage} | {field.meaning} |" in text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


WRITTEN = {"environment_tutorial.md": {"tests/test_corridor.py"}, "plugins.md": {"tests/test_soft_clip.py"}}
"""Tests in packages that a tutorial has its reader write, by page."""
TEXTS = [*PAGES, ROOT / "CHANGELOG.md", *ROOT.glob("*/README.md"), *(ROOT / "docs").glob("*/*.md")]


@pytest.mark.parametrize("page", TEXTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_that_are_named_exist(page):
    named = set(re.findall(r"\btests/[\w/]+\.py\b", page.read_text())) - WRITTEN.get(page.name, set())
    assert {name for name in named if not (ROOT / name).exists()} == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_commands_parse(page, capsys):
    """Every `dovetail` command line in a code block is one that the command line accepts."""
    import shlex

    from dovetail.cli import parse

    text = page.read_text()
    own = re.findall(r'commands\.add_parser\("(\w+)"', text)  # of a plugin that the page writes
    for block in re.findall(r"```sh\n(.*?)```", text, re.S):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if words[:1] == ["dovetail"] and words[1] not in own:
                assert parse(words[1:]).run


def test_generated_pages_are_what_the_code_says():
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    pages = generate.pages()
    for name, text in pages.items():
        assert (ROOT / "docs" / name).read_text() == text, f"{name}: run `make docs`"
    written = {f"components/{path.name}" for path in (ROOT / "docs" / "components").glob("*.md")}
    assert written <= pages.keys(), "run `make docs`"


def test_examples_of_components_show_python_numbers():
    """As docs/plugins.md asks for: the repr of an array says its dtype where a reader looks for a number."""
    pages = sorted((ROOT / "docs" / "components").glob("*.md"))
    shown = {page.name: re.findall(r"^\(?(?:Array|array)\(.*", page.read_text(), re.MULTILINE) for page in pages}
    assert len(pages) > 30
    assert not any(shown.values()), shown


def test_the_picture_of_a_step_shows_every_stage_kind_and_field():
    from xml.etree import ElementTree

    picture = ElementTree.parse(ROOT / "docs" / "step.svg")
    shown = " ".join(text.text or "" for text in picture.iter("{http://www.w3.org/2000/svg}text"))
    words = set(re.findall(r"\w+", shown))
    assert words >= {stage.name for stage in STAGES} | {kind.name for kind in KINDS if kind.stage} | set(FIELDS)
    width, height = (float(picture.getroot().attrib[side]) for side in ("width", "height"))
    for each in picture.iter("{http://www.w3.org/2000/svg}rect"):
        assert float(each.attrib["x"]) + float(each.attrib["width"]) <= width
        assert float(each.attrib["y"]) + float(each.attrib["height"]) <= height


COMING = re.sub(r"```.*?```", "", (ROOT / "docs" / "coming_from.md").read_text(), flags=re.DOTALL)
SPANS = re.findall(r"`([^`]+)`", COMING)
OURS = [row.split("|")[2] for row in COMING.splitlines() if row.startswith("|")]
NAMES = sorted({name for cell in OURS for name in re.findall(r"`(?:[a-z_]+/)?([a-z_]+(?:\.[a-z_0-9]+){1,2})`", cell)})
"""Settings without a value, in the column of ours."""


@pytest.mark.parametrize("name", NAMES)
def test_names_that_are_translated_to_exist(name):
    from dovetail.config import load
    from dovetail.registry import current

    section, field, *parameter = name.split(".")
    if parameter:
        assert parameter[0] in current().get(section, field).params
    else:
        assert hasattr(load(None, plan=False).sections[section], field)


@pytest.mark.parametrize("span", sorted({span for span in SPANS if re.match(r"[a-z_]+\.[a-z_.]+ = ", span)}))
def test_settings_that_are_translated_to_exist(span):
    from dovetail.config import load
    from dovetail.errors import ConfigError

    with contextlib.suppress(ConfigError):
        load(None, [span], plan=False)
        return
    with pytest.raises(ConfigError, match="has no default"):  # it is there, and wants a parameter of its own set
        load(None, [span], plan=False)
