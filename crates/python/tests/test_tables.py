"""Tables of reports in pyarrow, pandas and polars: the columns of Parquet files, without a copy."""

import pathlib
import subprocess

import pandas
import polars
import pyarrow
import pyarrow.parquet
import pytest

import flowgauge


def test_tables_are_those_of_parquet_files(capture, commands, tmp_path):
    options = {"epoch": "10s", "seed": 1, "task": "top,heavy-hitters,cardinality,entropy,size-distribution,top-sources"}
    flags = [flag for name, value in options.items() for flag in (f"--{name}", str(value))]
    folder = tmp_path / "tables"
    for command in commands:
        written = subprocess.run([command, "analyze", capture, *flags, "--format", "parquet", "-o", f"{folder}/"], stderr=subprocess.PIPE, text=True)
        if "was built without Parquet" not in written.stderr:
            break
    else:
        pytest.skip("no command is built with Parquet; 'make agent' builds one")
    assert written.returncode == 0, written.stderr
    reports = flowgauge.analyze(capture, **options)
    files = sorted(pathlib.Path(folder).rglob("*.parquet"))
    assert len(files) > 8
    for file in files:
        expected = pyarrow.parquet.read_table(file)
        table = pyarrow.table(reports.table(file.stem))
        if file.stem == "notes":
            continue
        assert table.schema == expected.schema.remove_metadata(), file.stem
        assert table.combine_chunks().equals(expected.combine_chunks()), file.stem


def test_packages_read_tables_without_a_copy(capture):
    table = flowgauge.analyze(capture, key="source", task="top", seed=1)[0]["top"]
    assert (table.name, len(table), table.columns[3:5]) == ("top", 7, ["source", "packets"])
    one, other = pyarrow.table(table), pyarrow.table(table)
    address = lambda read: read.column("packets").chunk(0).buffers()[1].address
    assert address(one) == address(other)
    assert one.column("packets").to_pylist()[:3] == [116, 78, 27]
    frame = pandas.DataFrame.from_arrow(table)
    assert frame["source"].iloc[0] == "172.16.238.131"
    assert polars.DataFrame(table)["packets"].to_list() == one.column("packets").to_pylist()
    assert pyarrow.schema(table) == one.schema
    del table, frame
    assert one.column("source").to_pylist()[0] == "172.16.238.131"


def test_a_table_spans_the_epochs(capture):
    reports = flowgauge.analyze(capture, ["a: key=source", "b: key=destination"], epoch="10s", task="top", seed=1)
    whole = pyarrow.table(reports.table("top", "a"))
    each = [pyarrow.table(report["top"]) for report in reports if report.measurement == "a"]
    assert len(each) == 4 and whole.combine_chunks().equals(pyarrow.concat_tables(each).combine_chunks())
    with pytest.raises(flowgauge.OptionError, match="several measurements, such as 'a' and 'b'"):
        reports["top"]
    with pytest.raises(KeyError, match="unknown table 'tops'; did you mean 'top'"):
        reports[0]["tops"]
    with pytest.raises(IndexError):
        reports[100]
    assert reports[-1].json() == list(reports)[-1].json()


def test_a_table_without_rows_has_its_columns(capture):
    table = flowgauge.analyze(capture, key="source", task="top", filter="port 1", seed=1)["top"]
    assert len(table) == 0
    assert pyarrow.table(table).column_names[3] == "source"


def test_a_report_prints_as_the_command_does(capture, command):
    printed = subprocess.run([command, "analyze", capture, "--seed", "1", "--key", "source"], capture_output=True, text=True, env={"LANG": "C.UTF-8"})
    report = flowgauge.analyze(capture, key="source", seed=1)[0]
    assert str(report) in printed.stdout
    assert repr(report) == "<flowgauge.Report 'main': epoch 0>"
