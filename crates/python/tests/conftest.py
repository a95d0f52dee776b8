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
def commands():
    """The commands that are built, the latest first."""
    built = [path for path in (ROOT / "target" / profile / "flowgauge" for profile in ("release", "debug")) if path.is_file()]
    if not built:
        pytest.skip("the command is not built")
    return [str(path) for path in sorted(built, key=lambda path: -path.stat().st_mtime)]


@pytest.fixture
def command(commands):
    """The command that was built last."""
    return commands[0]


@pytest.fixture(scope="module")
def spark():
    """A Spark session in one process."""
    # Without PySpark, the tests that ask for it are skipped.
    from cluster import builder

    session = builder("local[2]").getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
