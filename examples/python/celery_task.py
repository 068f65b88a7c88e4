"""A celery task of which only one runs at a time, on all machines. Whoever comes second leaves."""

import os

import celery

import holdfast

url = os.environ.get("REDIS_URL", "redis://localhost")
app = celery.Celery("celery_task", broker=os.environ.get("BROKER_URL", url), backend=os.environ.get("BROKER_URL", url))
client = holdfast.Client(url)


@app.task
def rebuild_index():
    try:
        with client.lock("rebuild-index", blocking=False) as lock:
            for _part in range(10):
                lock.ensure_held(1)  # Raises if the lock was lost, before anything is written.
            return "rebuilt"
    except holdfast.LockNotAcquiredError:
        return "another worker is at it"
