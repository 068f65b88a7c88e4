package holdfast.actor.redisson;

import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.redisson.RedissonFairLock;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RReadWriteLock;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/**
 * What the workers of the mixed stress test enter: a lock, a read/write lock or a semaphore, each in
 * every way that Redisson offers. A visitor has a weight; the weights of all who are inside never
 * exceed the place's capacity. tests/interop/stress_kinds.c is the same in C.
 */
final class Places {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final int LONGEST_WAIT_MS = 300;
    static final long READERS = 1000; /* The capacity of a read/write lock: a writer's weight. */
    static final int PERMITS = 3;
    /* Taken in one attempt only: of Redisson's waiters for several numbers, a message can wake the wrong
     * one, and then the other sleeps on though its permit is there. */
    private static final int MANY = 2;

    /** One place; {@code enter} is null when the way it chose was to give up. */
    interface Place {
        String name();

        long capacity();

        Visit enter(Random random) throws InterruptedException;
    }

    /** A stay inside. */
    interface Visit {
        long weight();

        void leave();

        /** A fencing token, or 0. */
        default long token() {
            return 0;
        }

        /** Goes on with less weight, sometimes, if the place knows how to. */
        default boolean downgrade(Random random) {
            return false;
        }
    }

    private Places() {
    }

    static Place open(RedissonClient client, String kind, String name, long lease) {
        switch (kind) {
            case "plain":
                return new LockPlace(name, client.getLock(name), lease, true);
            case "spin":
                return new LockPlace(name, client.getSpinLock(name), lease, true);
            case "nonreentrant":
                return new LockPlace(name, client.getNonReentrantLock(name), lease, false);
            case "fenced":
                RFencedLock fenced = client.getFencedLock(name);
                return new LockPlace(name, fenced, lease, true, fenced::getToken);
            case "fair":
                return new LockPlace(name, client.getFairLock(name), lease, true);
            case "nonreentrantfair":
                return new LockPlace(name, client.getNonReentrantFairLock(name), lease, false);
            case "group":
                return new LockPlace(name, client.getMultiLock(name, List.of("jack", "mary")), lease,
                        true);
            case "readwrite":
                return new ReadWritePlace(name, client.getReadWriteLock(name), lease);
            case "semaphore":
                return new SemaphorePlace(name, client.getSemaphore(name));
            case "permits":
                return new PermitsPlace(name, client.getPermitExpirableSemaphore(name), lease);
            default:
                throw new IllegalArgumentException("no kind " + kind);
        }
    }

    static Place openJoint(List<RedissonClient> clients, String kind, String name, long lease) {
        String names = kind.equals("multi") ? name + ".0|" + name + ".1|" + name + ".2" : name;
        return new JointPlace(name, JointLocks.open(clients, kind, names), lease);
    }

    private static boolean acquire(RLock lock, long lease, Random random)
            throws InterruptedException {
        int wait = random.nextInt(LONGEST_WAIT_MS);
        switch (random.nextInt(5)) {
            case 0:
                return lock.tryLock();
            case 1:
                return lock.tryLock(wait, MS) || passOn(lock);
            case 2:
                return lock.tryLock(wait, lease, MS) || passOn(lock);
            case 3:
                lock.lock(lease, MS);
                return true;
            default:
                lock.lock();
                return true;
        }
    }

    /**
     * After giving up; always false. Redisson's give-up of a fair lock tells nobody: if it was this
     * one's turn just then, the lock is free, and all behind it sleep on. An unlock by somebody who
     * does not hold it tells the first in line if nobody does, and else fails.
     */
    private static boolean passOn(RLock lock) {
        if (lock instanceof RedissonFairLock) {
            try {
                lock.unlock();
            } catch (IllegalMonitorStateException held) {
                return false; /* Its holder will tell. */
            }
        }
        return false;
    }

    /** Holds some locks, the last one first to be given back. */
    private record LockVisit(long weight, long token, List<RLock> held) implements Visit {
        @Override
        public void leave() {
            for (int i = held.size() - 1; i >= 0; i--) {
                held.get(i).unlock();
            }
        }
    }

    private record LockPlace(String name, RLock lock, long lease, boolean nests,
            LongSupplier token) implements Place {
        LockPlace(String name, RLock lock, long lease, boolean nests) {
            this(name, lock, lease, nests, () -> 0);
        }

        @Override
        public long capacity() {
            return 1;
        }

        @Override
        public Visit enter(Random random) throws InterruptedException {
            if (!acquire(lock, lease, random)) {
                return null;
            }
            boolean nested = nests && random.nextInt(4) == 0;
            if (nested) {
                lock.lock();
            }
            return new LockVisit(1, token.getAsLong(), nested ? List.of(lock, lock) : List.of(lock));
        }
    }

    /**
     * A lock made of several. Not in the way that has both a wait and a lease: its members are then
     * taken for twice the wait, until all are there, and nobody looks whether they still are. And not
     * nested, since the inner unlock of a RedLock may be that of the outer one.
     */
    private record JointPlace(String name, RLock lock, long lease) implements Place {
        @Override
        public long capacity() {
            return 1;
        }

        private boolean acquire(Random random) throws InterruptedException {
            switch (random.nextInt(4)) {
                case 0:
                    return lock.tryLock();
                case 1:
                    return lock.tryLock(random.nextInt(LONGEST_WAIT_MS), MS);
                case 2:
                    lock.lock(lease, MS);
                    return true;
                default:
                    lock.lock();
                    return true;
            }
        }

        @Override
        public Visit enter(Random random) throws InterruptedException {
            return acquire(random) ? new LockVisit(1, 0, List.of(lock)) : null;
        }
    }

    private record ReadWritePlace(String name, RReadWriteLock lock, long lease) implements Place {
        @Override
        public long capacity() {
            return READERS;
        }

        @Override
        public Visit enter(Random random) throws InterruptedException {
            boolean alone = random.nextInt(2) == 0;
            RLock side = alone ? lock.writeLock() : lock.readLock();
            if (!acquire(side, lease, random)) {
                return null;
            }
            if (alone && random.nextInt(4) == 0) {
                return new Downgrade(lock);
            }
            boolean nested = random.nextInt(4) == 0;
            if (nested) {
                side.lock();
            }
            return new LockVisit(alone ? READERS : 1, 0,
                    nested ? List.of(side, side) : List.of(side));
        }
    }

    /** A writer that reads on when it has stopped writing. */
    private static final class Downgrade implements Visit {
        private final RReadWriteLock lock;
        private boolean writes = true;

        Downgrade(RReadWriteLock lock) {
            this.lock = lock;
        }

        @Override
        public long weight() {
            return writes ? READERS : 1;
        }

        @Override
        public boolean downgrade(Random random) {
            lock.readLock().lock();
            lock.writeLock().unlock();
            writes = false;
            return true;
        }

        @Override
        public void leave() {
            lock.readLock().unlock();
        }
    }

    private record SemaphoreVisit(long weight, Runnable release) implements Visit {
        @Override
        public void leave() {
            release.run();
        }
    }

    private record SemaphorePlace(String name, RSemaphore semaphore) implements Place {
        @Override
        public long capacity() {
            return PERMITS;
        }

        @Override
        public Visit enter(Random random) throws InterruptedException {
            switch (random.nextInt(4)) {
                case 0:
                    return semaphore.tryAcquire(MANY) ? visit(MANY) : null;
                case 1:
                    return semaphore.tryAcquire() ? visit(1) : null;
                case 2:
                    return semaphore.tryAcquire(1, random.nextInt(LONGEST_WAIT_MS), MS)
                            ? visit(1) : null;
                default:
                    semaphore.acquire();
                    return visit(1);
            }
        }

        private Visit visit(int permits) {
            return new SemaphoreVisit(permits, () -> semaphore.release(permits));
        }
    }

    private record PermitsPlace(String name, RPermitExpirableSemaphore semaphore, long lease)
            implements Place {
        @Override
        public long capacity() {
            return PERMITS;
        }

        /* Older versions of Redisson take and give permits one by one only. */
        private static final boolean TAKES_MANY = Arrays.stream(
                RPermitExpirableSemaphore.class.getMethods()).anyMatch(
                        method -> method.getReturnType() == List.class);

        private List<String> acquire(Random random) throws InterruptedException {
            switch (random.nextInt(TAKES_MANY ? 3 : 2)) {
                case 0:
                    return one(semaphore.tryAcquire(random.nextInt(LONGEST_WAIT_MS), lease, MS));
                case 1:
                    return one(semaphore.acquire(lease, MS));
                default:
                    return semaphore.tryAcquire(MANY, 0, lease, MS);
            }
        }

        private static List<String> one(String id) {
            return id == null ? List.of() : List.of(id);
        }

        @Override
        public Visit enter(Random random) throws InterruptedException {
            List<String> ids = acquire(random);
            if (ids == null || ids.isEmpty()) {
                return null;
            }
            /* One by one or all at once: both ways have a script of their own. */
            Runnable release = TAKES_MANY && random.nextBoolean()
                    ? () -> semaphore.release(ids) : () -> ids.forEach(semaphore::release);
            return new SemaphoreVisit(ids.size(), release);
        }
    }
}
