"""Every block of docs/python.md runs, and every example."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import holdfast
from conftest import HANG_S, wait_until

TOP = Path(os.environ.get("HF_SOURCE_DIR", Path(__file__).parents[2]))
DOCUMENT = (TOP / "docs/python.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)


def environment(server, **more):
    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "REDIS_URL": server.url, **more}


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(server, number, tmp_path):
    """With this test's server for redis://localhost, also for redis-py."""
    program = BLOCKS[number].replace("redis://localhost", server.url)
    program = program.replace("redis.Redis()", f"redis.Redis(unix_socket_path={server.socket!r})")
    path = tmp_path / "block.py"
    path.write_text(program)
    done = subprocess.run(
        [sys.executable, "-X", "dev", path], env=environment(server), capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Warning" not in done.stderr, done.stderr


def test_document_names_every_exception_and_kind():
    for name in holdfast.__all__:
        if name.endswith("Error"):
            assert f"`{name}`" in DOCUMENT, name
    for kind in ("plain", "fair", "spin", "fenced", "string", "cohort"):
        assert f'`"{kind}"`' in DOCUMENT, kind
    assert len(DOCUMENT.split()) <= 1600


def run_example(server, name, *args):
    path = TOP / "examples/python" / name
    done = subprocess.run(
        [sys.executable, path, *args], env=environment(server), capture_output=True, text=True, timeout=HANG_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_example_asyncio_worker(server):
    assert sorted(run_example(server, "asyncio_worker.py").splitlines()) == [f"job {n} done" for n in range(5)]


def test_example_leader(server):
    """The second leads when the first is killed."""
    with holdfast.Client(server.url, watchdog=1.0) as client:
        client.ping()
        first = subprocess.Popen(
            [sys.executable, TOP / "examples/python/leader.py", "1000000"],
            env=environment(server, HOLDFAST_URL=server.url), stdout=subprocess.PIPE, text=True,
        )
        assert "leads, round 0" in first.stdout.readline()
        first.send_signal(signal.SIGKILL)
        first.wait()
        assert client.lock("leader", kind="fair").break_lock()
        assert "leads, round 2" in run_example(server, "leader.py", "3")


@pytest.mark.skipif(importlib.util.find_spec("flask") is None, reason="flask is not installed")
def test_example_flask(server, monkeypatch):
    monkeypatch.setenv("REDIS_URL", server.url)
    module = load("flask_handler")
    web = module.app.test_client()
    assert web.post("/orders/7/charge").json["charged"] == "now"
    assert web.post("/orders/7/charge").json["charged"] == "before"
    with holdfast.Client(server.url) as other, other.lock("order:8"):
        assert web.post("/orders/8/charge").status_code == 409
    module.client.close()


@pytest.mark.skipif(importlib.util.find_spec("celery") is None, reason="celery is not installed")
def test_example_celery(server, monkeypatch):
    monkeypatch.setenv("REDIS_URL", server.url)
    monkeypatch.setenv("BROKER_URL", "memory://")
    module = load("celery_task")
    assert module.rebuild_index() == "rebuilt"
    with holdfast.Client(server.url) as other, other.lock("rebuild-index"):
        assert module.rebuild_index() == "another worker is at it"
    wait_until(lambda: module.client.stats()["holds"] == 0)
    module.client.close()


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOP / "examples/python" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
