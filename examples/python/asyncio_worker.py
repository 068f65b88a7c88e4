"""Workers that share jobs among machines: a job has one worker at a time, and is cancelled if its lock is lost."""

import asyncio
import os

import holdfast
import holdfast.asyncio


async def work(client, job):
    try:
        async with client.lock(f"job:{job}", blocking=False):
            await asyncio.sleep(0.01)
            print(f"job {job} done", flush=True)
    except holdfast.LockNotAcquiredError:
        pass  # Another worker has it.
    except holdfast.LockLostError as error:
        print(f"job {job} was given up: {error}", flush=True)


async def main():
    async with holdfast.asyncio.Client(os.environ.get("REDIS_URL", "redis://localhost")) as client:
        async with asyncio.TaskGroup() as group:
            for job in range(5):
                group.create_task(work(client, job))


if __name__ == "__main__":
    asyncio.run(main())
