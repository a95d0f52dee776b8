"""Spark for tests: in one process, or as a standalone cluster on this machine."""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys

import pyspark


def builder(master):
    """A session with little memory, whose executors run this Python."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    session = pyspark.sql.SparkSession.builder.master(master).appName("flowgauge").config("spark.ui.enabled", False).config("spark.ui.showConsoleProgress", False)
    return session.config("spark.driver.memory", "1g").config("spark.sql.shuffle.partitions", 2)


@contextlib.contextmanager
def cluster(folder):
    """A session on a cluster of two workers with a core each, which run below a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = pathlib.Path(pyspark.__file__).parent
    environment = os.environ | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_WORKER_DIR": str(folder)}
    master = f"spark://127.0.0.1:{port}"

    def start(name, *arguments):
        log = open(folder / f"{name}.log", "w")
        command = [home / "bin" / "spark-class", *arguments, "--webui-port", "0"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
        log.close()
        return process

    package = "org.apache.spark.deploy"
    running = [start("master", f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port))]
    for number in range(2):
        running.append(start(f"worker-{number}", f"{package}.worker.Worker", "-c", "1", "-m", "1g", master))
    try:
        session = builder(master).config("spark.executor.memory", "512m").config("spark.executor.cores", 1).getOrCreate()
        session.sparkContext.setLogLevel("OFF")
        try:
            yield session
        finally:
            session.stop()
    finally:
        for process in reversed(running):
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def executors(folder):
    """The executors of a cluster, which run below this folder."""
    found = []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in words and (entry / "cwd").readlink().is_relative_to(folder):
                found.append(int(entry.name))
        except OSError:
            continue
    return found
