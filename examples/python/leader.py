"""Leader election: one process leads until it ends, or loses the lock; then the next one does."""

import os
import sys
import time

import holdfast


def lead(lock, rounds):
    for number in range(rounds):
        if lock.lost:
            return
        print(f"{os.getpid()} leads, round {number}", flush=True)
        time.sleep(0.01)


def main(rounds):
    with holdfast.Client(os.environ.get("REDIS_URL", "redis://localhost"), label="leader") as client:
        try:
            with client.lock("leader", kind="fair") as lock:
                lead(lock, rounds)
        except holdfast.LockLostError as error:
            print(f"{os.getpid()} leads no more: {error}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 3)
