"""The Python package beside redis-py with hiredis, interleaved: python.py URL [SECONDS [RUNS]]. One JSON line a run of
each row, and at the end the medians as ratios to redis-py. Uses redis.lock.Lock and its asyncio twin as they come.

    pairs            one thread: `with lock: pass`, without contention; beside it the C library, if HF_BENCH_PEERS
                     names its program, and a row `with`: the package's times as ratios to those of
                     the C library
    32 threads       the same in 32 threads, each with a lock of its own; also with busy_poll=off
    asyncio 1, 64    the same in tasks
    8 processes      one lock, held for 1 ms; then away for 4 ms, or for nobody: the latter also asks how evenly
                     they got it (the least to the most), and all ask for the longest wait
    8 asyncio        the same processes, with a loop in each
"""

import asyncio
import json
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import threading
import time

import redis
import redis.asyncio

import holdfast
import holdfast.asyncio

TTL_S = 30


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def opened(library, url):
    """(a function that makes a lock by name)"""
    if library == "redis-py":
        client = redis.Redis.from_url(url)
        return lambda name: client.lock(name, timeout=TTL_S)
    client = holdfast.Client(url, no_busy_poll=library == "busy_poll=off")
    kind = "fair" if library == "fair" else "plain"
    return lambda name: client.lock(name, kind=kind)


def pairs(make, name, seconds):
    lock, count, end = make(name), 0, time.monotonic() + seconds
    while time.monotonic() < end:
        with lock:
            count += 1
    return count


def measure_c(url, seconds):
    command = [os.environ["HF_BENCH_PEERS"], url, str(seconds), "1", "0.1", "1 thread"]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    made = next(m for m in map(json.loads, lines) if m["row"] == "1 thread")
    return {"pairs_per_s": made["pairs_per_s"], "cpu_us": made["cpu_s"] / made["pairs"] * 1e6}


def measure_pairs(library, url, seconds):
    if library == "C":
        return measure_c(url, seconds)
    make = opened(library, url)
    pairs(make, "bench", 0.1)
    cpu, start = cpu_seconds(), time.monotonic()
    count = pairs(make, "bench", seconds)
    return {"pairs_per_s": count / (time.monotonic() - start), "cpu_us": (cpu_seconds() - cpu) / count * 1e6}


def measure_threads(library, url, seconds):
    make, counts = opened(library, url), []

    def work(number):
        counts.append(pairs(make, f"bench{number}", seconds))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(32)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"pairs_per_s": sum(counts) / (time.monotonic() - start)}


def measure_asyncio(tasks):
    async def measure(library, url, seconds):
        if library == "redis-py":
            client = redis.asyncio.Redis.from_url(url)
            locks = [client.lock(f"bench{n}", timeout=TTL_S) for n in range(tasks)]
        else:
            client = holdfast.asyncio.Client(url)
            locks = [client.lock(f"bench{n}") for n in range(tasks)]
        count, end = 0, time.monotonic() + seconds

        async def work(lock):
            nonlocal count
            while time.monotonic() < end:
                async with lock:
                    count += 1

        cpu, start = cpu_seconds(), time.monotonic()
        await asyncio.gather(*map(work, locks))
        made = {"pairs_per_s": count / (time.monotonic() - start), "cpu_us": (cpu_seconds() - cpu) / count * 1e6}
        await client.aclose()
        return made

    return lambda *args: asyncio.run(measure(*args))


def async_contender(library, url, seconds, away, pipe):
    async def contend():
        if library == "redis-py":
            client = redis.asyncio.Redis.from_url(url)
            lock = client.lock("bench-contended", timeout=TTL_S)
        else:
            client = holdfast.asyncio.Client(url)
            lock = client.lock("bench-contended", kind="fair" if library == "fair" else "plain")
        pipe.send("ready")
        pipe.recv()
        count, longest, end = 0, 0.0, time.monotonic() + seconds
        while (start := time.monotonic()) < end:
            async with lock:
                longest = max(longest, time.monotonic() - start)
                await asyncio.sleep(0.001)
                count += 1
            if away:
                await asyncio.sleep(away)
        pipe.send((count, longest))
        await client.aclose()

    asyncio.run(contend())


def contender(library, url, seconds, away, pipe):
    lock = opened(library, url)("bench-contended")
    pipe.send("ready")
    pipe.recv()
    count, longest, end = 0, 0.0, time.monotonic() + seconds
    while (start := time.monotonic()) < end:
        with lock:
            longest = max(longest, time.monotonic() - start)
            time.sleep(0.001)
            count += 1
        if away:
            time.sleep(away)
    pipe.send((count, longest))


def measure_processes(away, body=contender):
    def measure(library, url, seconds):
        context = multiprocessing.get_context("fork")
        pipes, workers = [], []
        for _ in range(8):
            ours, theirs = context.Pipe()
            workers.append(context.Process(target=body, args=(library, url, seconds, away, theirs), daemon=True))
            workers[-1].start()
            pipes.append(ours)
        for pipe in pipes:
            pipe.recv()
        for pipe in pipes:
            pipe.send("go")
        parts = [pipe.recv() for pipe in pipes]
        for worker in workers:
            worker.join()
        counts = [count for count, _ in parts]
        longest = max(longest for _, longest in parts)
        return {
            "pairs_per_s": sum(counts) / seconds,
            "longest_wait_s": longest,
            "least_to_most": min(counts) / max(counts),
        }

    return measure


ROWS = {
    "pairs": measure_pairs,
    "32 threads": measure_threads,
    "asyncio 1": measure_asyncio(1),
    "asyncio 64": measure_asyncio(64),
    "8 processes, away": measure_processes(0.004),
    "8 asyncio processes, away": measure_processes(0.004, async_contender),
    "8 processes, nobody away": measure_processes(0),
}


def run(row, library, url, seconds, pipe):
    pipe.send(ROWS[row](library, url, seconds))


def in_a_process(*args):
    ours, theirs = multiprocessing.Pipe()
    worker = multiprocessing.get_context("fork").Process(target=run, args=(*args, theirs))
    worker.start()
    theirs.close()
    made = ours.recv()
    worker.join()
    return made


def main(url, seconds=2.0, runs=3):
    for row in ROWS:
        found = {}
        libraries = ["redis-py", "holdfast"] + (["fair"] if "processes" in row else [])
        libraries += ["busy_poll=off"] if row == "32 threads" else []
        libraries += ["C"] if row == "pairs" and "HF_BENCH_PEERS" in os.environ else []
        for number in range(runs):
            for library in libraries:
                made = in_a_process(row, library, url, seconds)
                line = {"row": row, "impl": library, "run": number} | {k: round(v, 4) for k, v in made.items()}
                print(json.dumps(line))
                for key, value in made.items():
                    found.setdefault((library, key), []).append(value)
        medians = {key: statistics.median(values) for key, values in found.items()}
        for library in libraries:
            made = {key: round(value, 4) for (name, key), value in medians.items() if name == library}
            print(json.dumps({"row": row, "median": library} | made))
        for library in libraries[1:]:
            ratios = {
                key: round(value / medians["redis-py", key], 2)
                for (name, key), value in medians.items()
                if name == library and key != "least_to_most" and medians["redis-py", key]
            }
            print(json.dumps({"row": row, "ratio": library, "to_redis_py": ratios}), flush=True)
        if "C" in libraries:
            wall = medians["C", "pairs_per_s"] / medians["holdfast", "pairs_per_s"]
            cpu = medians["holdfast", "cpu_us"] / medians["C", "cpu_us"]
            to_c = {"wall": round(wall, 2), "cpu": round(cpu, 2)}
            print(json.dumps({"row": "with", "ratio": "holdfast", "to_c": to_c}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], *(map(float, sys.argv[2:3])), *(map(int, sys.argv[3:4])))
