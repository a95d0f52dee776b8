#!/usr/bin/env python3
"""Checks that pandas and DuckDB load the tables of a report, as CSV and as Parquet, with equal values.

Usage: tables.py FLOWGAUGE
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import pandas

KINDS = {"measurement": "VARCHAR", "epoch": "UBIGINT", "start": "TIMESTAMPTZ_NS"}


def main() -> None:
    flowgauge = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        capture = Path(folder, "trace.pcap")
        plant = "flood:sources=500,packets=20000"
        subprocess.run(
            [flowgauge, "generate", "--packets", "100000", "--plant", plant, "-o", capture],
            check=True,
        )
        for form in ["csv", "parquet"]:
            analyze = [flowgauge, "analyze", "--epoch", "20ms", "--format", form, "-q"]
            subprocess.run([*analyze, "--seed", "0", "-o", f"{folder}/{form}/", capture], check=True)
        tables = sorted(Path(folder, "csv").glob("*.csv"))
        assert len(tables) >= 10, tables
        for table in tables:
            parquet = Path(folder, "parquet", table.stem + ".parquet")
            one, other = pandas.read_csv(table), pandas.read_parquet(parquet)
            assert list(one.columns) == list(other.columns), table
            assert len(one) == len(other), table
            for column in one.select_dtypes("number").columns:
                difference = one[column].astype(float) - other[column].astype(float)
                assert (difference.abs().fillna(0) == 0).all(), (table, column)
            kinds = duckdb.sql(f"DESCRIBE SELECT * FROM '{parquet}'").fetchall()
            kinds = {name: kind for name, kind, *_ in kinds}
            assert {name: kinds[name] for name in KINDS} == KINDS, kinds
            count = "SELECT count(*) FROM "
            for source in [f"read_csv('{table}', header = true)", f"'{parquet}'"]:
                assert duckdb.sql(count + source).fetchall() == [(len(one),)], (table, source)
        print(f"{len(tables)} tables: pandas and DuckDB load both forms, with equal values")


main()
