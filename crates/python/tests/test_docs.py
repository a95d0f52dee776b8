"""Examples of docstrings and of the page run, stubs fit, and the notebook draws its plot."""

import doctest
import inspect
import pathlib
import subprocess
import sys

import pytest

import flowgauge
from conftest import ROOT

EXAMPLES = [flowgauge, flowgauge.analyze, flowgauge.cut, flowgauge.Meter, flowgauge.Part, flowgauge.Report, flowgauge.Reports, flowgauge.Snapshot, flowgauge.Table]


@pytest.mark.parametrize("documented", EXAMPLES, ids=lambda one: one.__name__)
def test_examples_of_docstrings_run(documented, capture):
    name = documented.__name__
    examples = doctest.DocTestParser().get_doctest(inspect.getdoc(documented), {"flowgauge": flowgauge}, name, None, 0)
    assert examples.examples, f"{name} has no example"
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(examples).failed == 0


@pytest.mark.parametrize("page", ["python.md", "sql.md"])
def test_examples_of_the_pages_run(page, capture):
    path = str(ROOT / "docs" / page)
    failed, tried = doctest.testfile(path, module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert tried > 8 and failed == 0


def test_stubs_name_what_there_is(tmp_path):
    stubs = subprocess.run([sys.executable, "-m", "mypy.stubtest", "flowgauge._flowgauge", "--ignore-missing-stub"], capture_output=True, text=True, cwd=tmp_path)
    assert stubs.returncode == 0, stubs.stdout
    program = tmp_path / "program.py"
    program.write_text(
        "import flowgauge\n"
        "reports = flowgauge.analyze('a.pcap', key='source', workers=2)\n"
        "name: str = reports['top'].name\n"
        "flowgauge.analyze('a.pcap', kye='source')  # type: ignore[call-arg]\n"
        "number: int = reports[0].measurement  # type: ignore[assignment]\n"
    )
    checked = subprocess.run([sys.executable, "-m", "mypy", "--strict", str(program)], capture_output=True, text=True, cwd=tmp_path)
    assert checked.returncode == 0, checked.stdout


def test_the_notebook_draws_its_plot(capture, monkeypatch):
    notebook = pathlib.Path(__file__).parent.parent / "examples" / "bounds.py"
    monkeypatch.setenv("MPLBACKEND", "agg")
    sys.path.insert(0, str(notebook.parent))
    try:
        import bounds
    finally:
        sys.path.pop(0)
    _, names = bounds.app.run()
    assert len(names["top"]) == 10
    bars, errors = names["figure"].containers[:2]
    assert len(bars if len(bars) == 10 else errors) == 10
    assert (names["bounds"][1] > 0).all(), "the bounds have no width"
