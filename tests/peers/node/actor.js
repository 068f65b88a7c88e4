// Locks of Node.js' libraries under remote control: ../README.md lists the commands. One command runs at a time.
'use strict';

const readline = require('readline');
const { setTimeout: sleep } = require('timers/promises');
// The libraries are not beside this file, but where build.sh has put them.
const libraries = require('module').createRequire(process.argv[2] + '/');
const Redis = libraries('ioredis');

const TAKE_TRIES = 300; // 200 ms each: a minute.
const once = { retryCount: 0 };
const often = { retryCount: TAKE_TRIES, retryDelay: 200 };

// A server that is away is an error at once, not a wait for it.
function connect(port) {
    const client = new Redis(port, '127.0.0.1', { maxRetriesPerRequest: 0, enableOfflineQueue: true });
    client.on('error', () => {});
    return client;
}

// Each version makes its managers, one that tries once and one that waits, and says which of its errors mean
// that a lock could not be had.
const versions = {
    'node-redlock-4': () => {
        const Redlock = libraries('redlock4');
        return {
            manager: (clients, settings) => new Redlock(clients, settings),
            take: (manager, name, lease) => manager.lock(name, lease),
            isRefusal: (error) => error instanceof Redlock.LockError,
        };
    },
    'node-redlock-5': () => {
        const { default: Redlock, ExecutionError, ResourceLockedError } = libraries('redlock5');
        // It says that a lock has expired by a bare Error, before it asks any server.
        const hasExpired = (error) => /already-expired/.test(error.message);
        return {
            manager: (clients, settings) => new Redlock(clients, settings),
            take: (manager, name, lease) => manager.acquire([name], lease),
            isRefusal: (error) => error instanceof ExecutionError || error instanceof ResourceLockedError || hasExpired(error),
        };
    },
};

class Handle {
    constructor(peer, name, lease, ports) {
        this.version = versions[peer]();
        this.name = name;
        this.lease = lease;
        const clients = ports.map(connect);
        this.clients = clients;
        this.once = this.version.manager(clients, once);
        this.often = this.version.manager(clients, often);
        for (const manager of [this.once, this.often]) {
            manager.on('error', () => {});
            manager.on('clientError', () => {});
        }
    }

    async refused(answer, attempt) {
        try {
            await attempt();
            return 'ok';
        } catch (error) {
            if (!this.version.isRefusal(error)) throw error;
            return answer;
        }
    }

    take(manager) {
        return this.refused('busy', async () => {
            this.lock = await this.version.take(manager, this.name, this.lease);
        });
    }

    extend() {
        return this.refused('lost', async () => {
            this.lock = await this.once.extend(this.lock, this.lease);
        });
    }

    // Servers that were away are there again.
    async ready() {
        for (const client of this.clients) {
            if (client.status !== 'ready') await new Promise((resolve) => client.once('ready', resolve));
        }
        return 'ok';
    }

    release() {
        return this.refused('lost', () => this.once.release(this.lock));
    }

    owned() {
        return this.lock.expiration > Date.now() ? 'ok' : 'lost';
    }
}

// Steps in a book that only an exclusive owner may take: what was read is what is written over.
async function work(handle, rounds, port) {
    const book = connect(port);
    for (let i = 0; i < rounds; i++) {
        while ((await handle.take(handle.often)) !== 'ok');
        const page = Number((await book.get('book')) || 0);
        await sleep(2);
        await book.set('book', page + 1);
        await handle.release();
    }
    book.disconnect();
    return 'ok';
}

const handles = {};

async function obey(verb, words) {
    if (verb === 'ping') return 'ok';
    if (verb === 'open') {
        const [handle, peer, name, lease, ...ports] = words;
        handles[handle] = new Handle(peer, name, Number(lease), ports.map(Number));
        return 'ok';
    }
    const handle = handles[words[0]];
    switch (verb) {
        case 'try': return handle.take(handle.once);
        case 'take': return handle.take(handle.often);
        case 'extend': return handle.extend();
        case 'release': return handle.release();
        case 'ready': return handle.ready();
        case 'owned': return handle.owned();
        case 'locked': return 'silent'; // It has no such call.
        case 'work': return work(handle, Number(words[1]), Number(words[2]));
        default: throw new Error('no such command');
    }
}

async function main() {
    for await (const line of readline.createInterface({ input: process.stdin })) {
        const [id, verb, ...words] = line.split(' ');
        let answer;
        try {
            answer = await obey(verb, words);
        } catch (error) {
            answer = `err ${error.name} ${error.message}`.replace(/\s+/g, ' ');
        }
        process.stdout.write(`${id} ${answer}\n`);
    }
    process.exit(0);
}

main();
