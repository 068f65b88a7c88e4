// npm redlock's rows: lock+unlock pairs by one client without contention, and 8 clients, each a
// process of its own, draining one lock: all want it at once, each holds it for 1 ms, and the round
// is over when all have had it. Arguments: URL SECONDS RUNS WARMUP_SECONDS; one JSON line a run on
// standard output.
//
// Everything is as it comes, but for retryCount: without end, or contenders would give up after 10
// tries.
'use strict';

const {fork} = require('child_process');
const fs = require('fs');
const Redis = require('ioredis');
const Redlock = require('redlock');

const TTL_MS = 30000;
const CLIENTS = 8;
const HOLD_MS = 1;

function connect(url) {
    return url.startsWith('unix://') ? new Redis(url.slice('unix://'.length)) : new Redis(url);
}

function secondsSince(start) {
    return Number(process.hrtime.bigint() - start) / 1e9;
}

async function pair(redlock, name, holdMs) {
    const start = process.hrtime.bigint();
    const lock = await redlock.lock(name, TTL_MS);
    if (holdMs > 0) {
        await new Promise((resolve) => setTimeout(resolve, holdMs));
    }
    await lock.unlock();
    return secondsSince(start) * 1e6;
}

async function pairs(redlock, name, seconds) {
    const micros = [];
    for (const start = process.hrtime.bigint(); secondsSince(start) < seconds;) {
        micros.push(await pair(redlock, name, 0));
    }
    return micros;
}

function residentMegabytes() {
    const found = /VmRSS:\s+(\d+)/.exec(fs.readFileSync('/proc/self/status', 'utf8'));
    return Number(found[1]) / 1024;
}

function cpuSeconds() {
    const used = process.cpuUsage();
    return (used.user + used.system) / 1e6;
}

function sum(values) {
    return values.reduce((total, value) => total + value, 0);
}

function percentile(sorted, percent) {
    return sorted.length === 0 ? 0 : sorted[Math.floor((sorted.length - 1) * percent / 100)];
}

function report(row, run, micros, seconds, cpu, rss) {
    micros.sort((a, b) => a - b);
    console.log(JSON.stringify({
        impl: 'redlock',
        row,
        pairs_per_s: Math.round(micros.length / seconds),
        p50_us: Math.round(percentile(micros, 50)),
        p99_us: Math.round(percentile(micros, 99)),
        cpu_s: Number(cpu.toFixed(3)),
        rss_mb: Number(rss.toFixed(1)),
        pairs: micros.length,
        run,
    }));
}

async function measureAlone(redlock, seconds, run) {
    const cpu = cpuSeconds();
    const start = process.hrtime.bigint();
    const micros = await pairs(redlock, 'bench-redlock', seconds);
    report('1 thread', run, micros, secondsSince(start), cpuSeconds() - cpu, residentMegabytes());
}

// What a contending process runs: one pair each time it is told to.
async function contender(url) {
    const redis = connect(url);
    const redlock = new Redlock([redis], {retryCount: -1});
    await redis.ping();
    process.on('message', async () => {
        const micros = await pair(redlock, 'bench-redlock-contended', HOLD_MS);
        process.send({micros, cpu: cpuSeconds(), rss: residentMegabytes()});
    });
    process.once('disconnect', () => process.exit(0));
    process.send('ready');
}

function answer(child) {
    return new Promise((resolve, reject) => {
        const gone = () => reject(new Error('a client ended without a result'));
        child.once('exit', gone);
        child.once('message', (message) => {
            child.off('exit', gone);
            resolve(message);
        });
    });
}

// One round: everybody starts at once, and it is over when the last one is done.
async function drain(children) {
    const answers = Promise.all(children.map(answer));
    children.forEach((child) => child.send('go'));
    return answers;
}

async function measureDrain(children, seconds, run) {
    const micros = [];
    let parts = await drain(children);
    const cpu = sum(parts.map((part) => part.cpu));
    const start = process.hrtime.bigint();
    do {
        parts = await drain(children);
        micros.push(...parts.map((part) => part.micros));
    } while (secondsSince(start) < seconds);
    report(`${CLIENTS} clients drain`, run, micros, secondsSince(start),
        sum(parts.map((part) => part.cpu)) - cpu, sum(parts.map((part) => part.rss)));
}

async function main(url, seconds, runs, warmUp) {
    const redis = connect(url);
    const redlock = new Redlock([redis], {retryCount: -1});
    await pairs(redlock, 'bench-redlock', warmUp);
    for (let run = 1; run <= runs; run++) {
        await measureAlone(redlock, seconds, run);
    }
    redis.disconnect();

    const children = Array.from({length: CLIENTS}, () => fork(__filename, ['--contender', url]));
    await Promise.all(children.map(answer));
    for (let run = 1; run <= runs; run++) {
        await measureDrain(children, seconds, run);
    }
    children.forEach((child) => child.disconnect());
}

const words = process.argv.slice(2);
const job = words[0] === '--contender'
    ? contender(words[1])
    : main(words[0], Number(words[1]), Number(words[2]), Number(words[3]));
job.catch((error) => {
    console.error(error);
    process.exit(1);
});
