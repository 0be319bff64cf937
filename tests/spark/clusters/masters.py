"""Spark clusters on the loopback addresses of this machine, out of nothing but the package of PySpark."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.spark.clusters.processes import running, spark_environment

QUIET = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": "4",
}
"""Settings of every session here."""

LOCAL = QUIET | {"spark.master": "local[2,4]"}
"""Two slots in the driver's own process, and four attempts for each task."""


@dataclass(frozen=True)
class Cluster:
    """What the drivers of a cluster need, and where its workers keep what executors write."""

    settings: dict[str, str]
    environment: dict[str, str]
    directory: Path


def spark_program(name: str) -> Path:
    """Return a program of the package of PySpark; it writes nothing there."""
    import pyspark

    return Path(pyspark.__file__).parent / "bin" / name


@contextlib.contextmanager
def standalone(directory: Path, secrets: Mapping[str, str]) -> Iterator[Cluster]:
    """Run a master and two workers, each with an address of its own, for only then Spark runs copies of slow tasks.

    Parameters
    ----------
    secrets
        Environment of the workers, which executors get from them, and of the drivers.
    """
    environment = spark_environment(SPARK_DAEMON_MEMORY="256m", **secrets)
    classes = spark_program("spark-class")
    port, pages, *worker_pages = free_ports(4)
    url = f"spark://127.0.0.1:{port}"
    with contextlib.ExitStack() as trees:
        command: list[str | Path] = [
            classes,
            "org.apache.spark.deploy.master.Master",
            "--host",
            "127.0.0.1",
            "--port",
            str(port),
        ]
        command += ["--webui-port", str(pages)]
        master = trees.enter_context(running(command, directory / "master" / "log", environment))
        for number, page in enumerate(worker_pages):
            host = f"127.0.0.{number + 2}"
            command = [classes, "org.apache.spark.deploy.worker.Worker", "--host", host, "--cores", "1"]
            command += ["--memory", "1g", "--work-dir", directory / host / "work", "--webui-port", str(page), url]
            trees.enter_context(running(command, directory / host / "log", environment | {"SPARK_LOCAL_IP": host}))
        registered = "Registering worker 127.0.0."
        master.wait_for(lambda: master.log.read_text().count(registered) == len(worker_pages), "two workers")
        settings = {"spark.master": url, "spark.executor.memory": "512m"}
        # What the driver's environment says does not reach executors of a standalone cluster.
        settings["spark.executorEnv.PYTHONPATH"] = environment["PYTHONPATH"]
        yield Cluster(QUIET | settings, environment, directory)


@contextlib.contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """Run a Spark Connect server with two slots; returns its address."""
    (port,) = free_ports(1)
    command = [spark_program("spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for name, value in (LOCAL | {"spark.connect.grpc.binding.port": str(port)}).items():
        command += ["--conf", f"{name}={value}"]
    with running([*command, "spark-internal"], directory / "server" / "log", spark_environment()) as server:
        server.wait_for(lambda: _accepts(port), "Spark Connect server")
        yield f"sc://127.0.0.1:{port}"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def _accepts(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
