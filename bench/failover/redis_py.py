"""redis-py as a process of the failover's benchmark; see worker.c for what it does and prints.

    redis_py.py sentinel|cluster SECONDS PORT...
"""

import sys
import time

from redis.cluster import ClusterNode, RedisCluster
from redis.sentinel import Sentinel


def now_us():
    return time.time_ns() // 1000


def connect(topology, ports):
    if topology == "cluster":
        return RedisCluster(startup_nodes=[ClusterNode("127.0.0.1", int(port)) for port in ports], socket_timeout=3)
    sentinel = Sentinel([("127.0.0.1", int(port)) for port in ports], socket_timeout=3)
    return sentinel.master_for("guards", socket_timeout=3)


def main():
    seconds = int(sys.argv[2])
    client = connect(sys.argv[1], sys.argv[3:])
    for held in ("held-redis-py", "lost-redis-py"):
        if not client.lock(held, timeout=30).acquire():
            sys.exit(1)
    print("ready", flush=True)
    lock = client.lock("calls-redis-py", timeout=30, sleep=0.01)
    end_us = now_us() + seconds * 1000000
    while now_us() < end_us:
        began_us, result = now_us(), "ok"
        try:
            lock.acquire()
            lock.release()
        except Exception as error:  # pylint: disable=broad-except # whatever its caller would see
            result = type(error).__name__
            lock.local.token = None
        print("call", began_us, now_us(), result, flush=True)
        time.sleep(0.01)


main()
