"""Common fixtures: a real capture, and a separate folder for each test."""

import pathlib
import shutil

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
CAPTURE = ROOT / "tests" / "captures" / "var-services-std-ports.pcap"


@pytest.fixture
def capture(tmp_path, monkeypatch):
    """A real capture named `capture.pcap`, in the current folder."""
    monkeypatch.chdir(tmp_path)
    return shutil.copy(CAPTURE, tmp_path / "capture.pcap")


@pytest.fixture
def command():
    """The command, if it is built."""
    for built in ("release", "debug"):
        path = ROOT / "target" / built / "flowgauge"
        if path.is_file():
            return str(path)
    pytest.skip("the command is not built")


@pytest.fixture(scope="module")
def spark():
    """A Spark session in one process."""
    # Without PySpark, the tests that ask for it are skipped.
    from cluster import builder

    session = builder("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
