// npm redlock as a process of the quorum's benchmark: redlock.js NAME WARM_MS HOLD_MS THINK_MS PORT...
// See worker.c for what it does and prints.
//
// Everything is as it comes, but for retryCount: without end, or contenders would give up after 10 tries.
'use strict';

const readline = require('readline');
const Redis = require('ioredis');
const package_ = require('redlock');

const Redlock = package_.default || package_; // of version 5, and before
const TTL_MS = 10000;

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

// When to start and when to end, as the first line of the standard input.
async function plan() {
    const input = readline.createInterface({input: process.stdin});
    const line = await new Promise((resolve) => input.once('line', resolve));
    input.close();
    return line.split(' ').map(Number);
}

async function main(name, warmMs, holdMs, thinkMs, ports) {
    const servers = ports.map((port) => new Redis(port, '127.0.0.1'));
    const redlock = new Redlock(servers, {retryCount: -1});
    redlock.on('error', () => {}); // version 5 tells of every server that somebody else has
    for (const began = Date.now(); Date.now() < began + warmMs;) {
        await pair(redlock, `${name}-warm-${process.pid}`, 0);
    }
    process.stdout.write('ready\n');
    const [start, end] = await plan();
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
const [warmMs, holdMs, thinkMs, ...ports] = numbers.map(Number);
main(name, warmMs, holdMs, thinkMs, ports).catch((error) => {
    console.error(error);
    process.exit(1);
});
