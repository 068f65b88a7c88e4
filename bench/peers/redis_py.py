"""redis-py's rows: lock+unlock pairs by one client without contention, and 8 clients, each a
process of its own, draining one lock: all want it at once, each holds it for 1 ms, and the round is
over when all have had it. Arguments: URL SECONDS RUNS WARMUP_SECONDS; one JSON line a run on
standard output.

redis.lock.Lock is used as it comes, polling interval included.
"""

import json
import multiprocessing
import re
import resource
import sys
import time

import redis

TTL_S = 30
CLIENTS = 8
HOLD_S = 0.001


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def resident_megabytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read()).group(1)) / 1024


def pair(lock, hold_s):
    """One lock and unlock; how long it took in microseconds."""
    start = time.monotonic()
    lock.acquire()
    if hold_s > 0:
        time.sleep(hold_s)
    lock.release()
    return (time.monotonic() - start) * 1e6


def pairs(client, seconds):
    lock = client.lock("bench-redis-py", timeout=TTL_S)
    micros = []
    start = time.monotonic()
    while time.monotonic() < start + seconds:
        micros.append(pair(lock, 0))
    return micros


def percentile(ordered, percent):
    return ordered[(len(ordered) - 1) * percent // 100] if ordered else 0


def report(row, run, micros, seconds, cpu, rss):
    micros.sort()
    line = {
        "impl": "redis-py",
        "row": row,
        "pairs_per_s": round(len(micros) / seconds),
        "p50_us": round(percentile(micros, 50)),
        "p99_us": round(percentile(micros, 99)),
        "cpu_s": round(cpu, 3),
        "rss_mb": round(rss, 1),
        "pairs": len(micros),
        "run": run,
    }
    print(json.dumps(line, separators=(",", ":")), flush=True)


def measure_alone(client, seconds, run):
    cpu = cpu_seconds()
    start = time.monotonic()
    micros = pairs(client, seconds)
    took = time.monotonic() - start
    report("1 thread", run, micros, took, cpu_seconds() - cpu, resident_megabytes())


def contender(url, pipe):
    """What a contending process runs: one pair each time it is told to."""
    client = redis.Redis.from_url(url)
    client.ping()
    lock = client.lock("bench-redis-py-contended", timeout=TTL_S)
    pipe.send("ready")
    while pipe.recv() == "go":
        micros = pair(lock, HOLD_S)
        pipe.send({"micros": micros, "cpu": cpu_seconds(), "rss": resident_megabytes()})


def drain(pipes):
    """One round: everybody starts at once, and it is over when the last one is done."""
    for pipe in pipes:
        pipe.send("go")
    return [pipe.recv() for pipe in pipes]


def measure_drain(pipes, seconds, run):
    micros = []
    cpu = sum(part["cpu"] for part in drain(pipes))
    start = time.monotonic()
    while True:
        parts = drain(pipes)
        micros += [part["micros"] for part in parts]
        if time.monotonic() >= start + seconds:
            break
    took = time.monotonic() - start
    used = sum(part["cpu"] for part in parts) - cpu
    report(f"{CLIENTS} clients drain", run, micros, took, used, sum(part["rss"] for part in parts))


def start_contender(url):
    ours, theirs = multiprocessing.Pipe()
    multiprocessing.Process(target=contender, args=(url, theirs), daemon=True).start()
    theirs.close()
    assert ours.recv() == "ready"
    return ours


def main(url, seconds, runs, warm_up):
    client = redis.Redis.from_url(url)
    pairs(client, warm_up)
    for run in range(1, runs + 1):
        measure_alone(client, seconds, run)
    client.close()
    pipes = [start_contender(url) for _ in range(CLIENTS)]
    for run in range(1, runs + 1):
        measure_drain(pipes, seconds, run)
    for pipe in pipes:
        pipe.send("end")


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))
