package holdfast.bench;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.IntFunction;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** The workloads. Each runs for a given time and returns the samples of its workers. */
final class Rows {
    private static final long HOLD_MS = 1;

    private Rows() {
    }

    /** Threads that each lock and unlock what {@code lockOf} gives them, as fast as they can. */
    static List<Samples> threads(int count, IntFunction<RLock> lockOf, long nanos)
            throws Exception {
        List<Samples> samples = new ArrayList<>();
        List<Future<?>> results = new ArrayList<>();
        CyclicBarrier ready = new CyclicBarrier(count);
        ExecutorService threads = Executors.newFixedThreadPool(count);
        for (int i = 0; i < count; i++) {
            RLock lock = lockOf.apply(i);
            Samples mine = new Samples();
            samples.add(mine);
            results.add(threads.submit(() -> {
                await(ready);
                pairs(lock, mine, System.nanoTime() + nanos);
                return null;
            }));
        }
        for (Future<?> result : results) {
            result.get();
        }
        threads.shutdown();
        return samples;
    }

    private static void pairs(RLock lock, Samples samples, long end) {
        for (long start = System.nanoTime(); start < end;) {
            lock.lock();
            lock.unlock();
            long now = System.nanoTime();
            samples.add(now - start);
            start = now;
        }
    }

    private static void await(CyclicBarrier barrier) throws Exception {
        barrier.await(1, TimeUnit.MINUTES);
    }

    /**
     * Threads that all want one lock at once, hold it for 1 ms each, and start again when all have
     * had it. A sample is the time from the start of a round to one thread's unlock.
     */
    static List<Samples> drain(int count, IntFunction<RLock> lockOf, long nanos) throws Exception {
        List<Samples> samples = new ArrayList<>();
        List<Future<?>> results = new ArrayList<>();
        long end = System.nanoTime() + nanos;
        AtomicBoolean over = new AtomicBoolean();
        CyclicBarrier round = new CyclicBarrier(count, () -> over.set(System.nanoTime() >= end));
        ExecutorService threads = Executors.newFixedThreadPool(count);
        for (int i = 0; i < count; i++) {
            RLock lock = lockOf.apply(i);
            Samples mine = new Samples();
            samples.add(mine);
            results.add(threads.submit(() -> {
                /* With a limit, so that one thread's failure ends the others too. */
                for (await(round); !over.get(); await(round)) {
                    long start = System.nanoTime();
                    lock.lock();
                    Thread.sleep(HOLD_MS);
                    lock.unlock();
                    mine.add(System.nanoTime() - start);
                }
                return null;
            }));
        }
        for (Future<?> result : results) {
            result.get();
        }
        threads.shutdown();
        return samples;
    }

    /** So many locks in flight at once from callbacks, each with an owner of its own. */
    static List<Samples> async(RedissonClient client, int inFlight, String name, long nanos)
            throws Exception {
        long end = System.nanoTime() + nanos;
        List<Samples> samples = new ArrayList<>();
        List<CompletableFuture<Void>> done = new ArrayList<>();
        for (int i = 0; i < inFlight; i++) {
            AsyncPairs pairs = new AsyncPairs(client.getLock(name + i), i + 1, end);
            samples.add(pairs.samples);
            done.add(pairs.done);
            pairs.next();
        }
        for (CompletableFuture<Void> one : done) {
            one.get();
        }
        return samples;
    }

    private static final class AsyncPairs {
        final Samples samples = new Samples();
        final CompletableFuture<Void> done = new CompletableFuture<>();
        private final RLock lock;
        private final long owner;
        private final long end;

        AsyncPairs(RLock lock, long owner, long end) {
            this.lock = lock;
            this.owner = owner;
            this.end = end;
        }

        void next() {
            long start = System.nanoTime();
            if (start >= end) {
                done.complete(null);
                return;
            }
            CompletionStage<Void> pair =
                    lock.lockAsync(owner).thenCompose(held -> lock.unlockAsync(owner));
            pair.whenComplete((free, e) -> {
                if (e != null) {
                    done.completeExceptionally(e);
                    return;
                }
                samples.add(System.nanoTime() - start);
                next();
            });
        }
    }
}
