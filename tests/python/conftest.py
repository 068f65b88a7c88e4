"""A server of its own for each run of the tests, and what they share. HF_SOAK=1: full sizes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import subprocess
import time
from pathlib import Path

import pytest
import redis

import holdfast

SOAK = os.environ.get("HF_SOAK") == "1"
WATCHDOG = 3.0  # A process may stand still for two thirds of it, and nothing is lost.
HANG_S = 300  # An upper bound is a hang limit, at least ten times what is expected on a busy machine.


def wait_until(condition, what="it"):
    end = time.monotonic() + HANG_S
    while not (value := condition()):
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(0.005)  # The condition is polled: it may be of a server or a file.
    return value


def losses(events):
    """Those events that are losses: a renewal that comes late is a warning before."""
    return [event for event in events if event.kind == "lost"]


class Server:
    """A redis-server on a Unix socket, which ends with this process."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.socket = str(directory / "redis.sock")
        self.url = f"unix://{self.socket}"
        program = os.environ.get("HF_TEST_SERVER", "redis-server")
        command = [program, "--port", "0", "--unixsocket", self.socket, "--save", "", "--dir", str(directory)]
        self.process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *command, *options], stdout=subprocess.DEVNULL
        )
        self.redis = redis.Redis(unix_socket_path=self.socket)
        wait_until(self._answers, "the start of the server")

    def _answers(self) -> bool:
        try:
            return bool(self.redis.ping())
        except redis.ConnectionError:
            assert self.process.poll() is None, "the server has ended"
            return False

    def listen(self, option: str = "port") -> int:
        """From now on also at a port of 127.0.0.1."""
        for _ in range(100):
            port = random.randrange(10000, 32768)  # The kernel gives these to nobody.
            with contextlib.suppress(redis.ResponseError):  # It is in use.
                self.redis.config_set(option, port)
                return port
        pytest.skip(f"this server cannot change its {option}")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def new_server(tmp_path_factory):
    """Starts further servers."""
    made = []

    def start(*options):
        made.append(Server(tmp_path_factory.mktemp("s"), *options))
        return made[-1]

    yield start
    for server in made:
        server.stop()


@pytest.fixture(scope="session")
def _server(tmp_path_factory):
    if shutil.which(os.environ.get("HF_TEST_SERVER", "redis-server")) is None:
        pytest.skip("redis-server is not installed")
    server = Server(tmp_path_factory.mktemp("s"))
    yield server
    server.stop()


@pytest.fixture
def server(_server):
    _server.redis.flushall()
    yield _server
    _server.redis.flushall()


@pytest.fixture
def client(server):
    """What it leaves behind stays for longer than any test."""
    with holdfast.Client(server.url, watchdog=1000) as client:
        yield client


@pytest.fixture
def other(server):
    """Another client, as it were of another process."""
    with holdfast.Client(server.url) as client:
        yield client


@pytest.fixture
def zookeeper(tmp_path):
    """The url of a server of ZooKeeper, whose classes the C library's tests fetch."""
    build, source = os.environ.get("HF_BUILD_DIR"), os.environ.get("HF_SOURCE_DIR")
    if build is None or source is None:
        pytest.skip("HF_BUILD_DIR and HF_SOURCE_DIR are not set")
    Path(build, "java").mkdir(parents=True, exist_ok=True)
    made = subprocess.run(
        ["flock", f"{build}/java/lock", "bash", f"{source}/tests/java/build.sh", f"{build}/java", "server"],
        capture_output=True,
        text=True,
    )
    if made.returncode == 77:
        pytest.skip(made.stdout.strip())
    assert made.returncode == 0, made.stderr
    classes = Path(build, "java", "servers").read_text().strip()
    command = ["setpriv", "--pdeathsig", "KILL", "java", "-XX:+UseSerialGC", "-Xmx128m", "-cp", classes]
    command += ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(tmp_path / "zoo.cfg")]
    for _ in range(20):
        port = random.randrange(10000, 32768)  # The kernel gives these to nobody.
        (tmp_path / "zoo.cfg").write_text(
            f"dataDir={tmp_path}/data\nclientPort={port}\nclientPortAddress=127.0.0.1\ntickTime=500\n"
            "admin.enableServer=false\n"
        )
        with open(tmp_path / "log", "w") as log:
            server = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda server=server, port=port: server.poll() is not None or is_zookeeper(port), "its start")
        if server.poll() is None:
            break  # Otherwise the port was in use.
    yield f"zk://127.0.0.1:{port}"
    server.kill()
    server.wait()


def is_zookeeper(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), HANG_S) as connection:
        connection.sendall(b"srvr")
        return connection.recv(9) == b"Zookeeper"
    return False
