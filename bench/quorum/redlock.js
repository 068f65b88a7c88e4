// npm redlock as a process of the quorum's benchmark: redlock.js NAME START_MS END_MS HOLD_MS THINK_MS
// PORT... See worker.c for what it does and prints.
//
// Everything is as it comes, but for retryCount: without end, or contenders would give up after 10 tries.
'use strict';

const Redis = require('ioredis');
const package_ = require('redlock');

const Redlock = package_.default || package_; // of version 5, and before
const TTL_MS = 10000;
const WARM_BEFORE_MS = 300;

function now() {
    return Math.round((performance.timeOrigin + performance.now()) * 1000);
}

function sleep(ms) {
    return new Promise((resolve) => setTimeout(resolve, ms));
}

async function pair(redlock, name, holdMs) {
    const began = now();
    const lock = await (redlock.lock ? redlock.lock(name, TTL_MS) : redlock.acquire([name], TTL_MS));
    const acquired = now();
    if (holdMs > 0) {
        await sleep(holdMs);
    }
    const releasing = now();
    await (lock.unlock ? lock.unlock() : lock.release());
    return [began, acquired, releasing, now()];
}

async function main(name, start, end, holdMs, thinkMs, ports) {
    const servers = ports.map((port) => new Redis(port, '127.0.0.1'));
    const redlock = new Redlock(servers, {retryCount: -1});
    redlock.on('error', () => {}); // version 5 tells of every server that somebody else has
    while (Date.now() < start - WARM_BEFORE_MS) {
        await pair(redlock, `${name}-warm-${process.pid}`, 0);
    }
    await sleep(start - Date.now());
    const lines = [];
    while (Date.now() < end) {
        lines.push((await pair(redlock, name, holdMs)).join(' '));
        if (thinkMs > 0) {
            await sleep(thinkMs);
        }
    }
    servers.forEach((server) => server.disconnect());
    process.stdout.write(lines.map((line) => `${line}\n`).join(''));
}

const [name, ...numbers] = process.argv.slice(2);
const [start, end, holdMs, thinkMs, ...ports] = numbers.map(Number);
main(name, start, end, holdMs, thinkMs, ports).catch((error) => {
    console.error(error);
    process.exit(1);
});
