package holdfast.interop;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * The Java half of the mixed stress test: worker threads that acquire locks in every way there is
 * and, while holding one, raise a counter in two steps that only the lock keeps together. The two
 * scripts (stress_enter.lua, stress_leave.lua) are loaded by the driver; the C workers run the same
 * ones.
 *
 * <p>Options: names=a,b (locks), process=P (this client's name in the books), workers=n, seed=n,
 * ms=n (how long), lease=ms (fixed leases), enter=sha1, leave=sha1. Answers "sections=n missed=n".
 */
final class Stress {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final int LONGEST_WAIT_MS = 300;
    private static final int LONGEST_WORK_MS = 4;

    private final RedissonClient client;
    private final String[] names;
    private final String process;
    private final int workers;
    private final long seed;
    private final long lease;
    private final String enter;
    private final String leave;
    private final long end;

    Stress(RedissonClient client, Request request) {
        this.client = client;
        names = request.text("names").split(",");
        process = request.text("process");
        workers = (int) request.number("workers", 2);
        seed = request.number("seed");
        lease = request.number("lease");
        enter = request.text("enter");
        leave = request.text("leave");
        end = System.nanoTime() + MS.toNanos(request.number("ms"));
    }

    Object run() throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(workers);
        try {
            List<Future<long[]>> results = new ArrayList<>();
            for (int i = 0; i < workers; i++) {
                String me = process + '/' + i;
                Random random = new Random(seed + i);
                results.add(threads.submit(() -> work(me, random)));
            }
            long sections = 0;
            long missed = 0;
            for (Future<long[]> result : results) {
                sections += result.get()[0];
                missed += result.get()[1];
            }
            return "sections=" + sections + " missed=" + missed;
        } finally {
            threads.shutdownNow();
        }
    }

    private long[] work(String me, Random random) throws InterruptedException {
        long sections = 0;
        long missed = 0;
        long longest = 0;
        while (System.nanoTime() < end) {
            String name = names[random.nextInt(names.length)];
            RLock lock = client.getLock(name);
            long start = System.nanoTime();
            boolean acquired = acquire(lock, random);
            longest = Math.max(longest, System.nanoTime() - start);
            if (!acquired) {
                missed++;
                continue;
            }
            boolean nested = random.nextInt(4) == 0;
            if (nested) {
                lock.lock();
            }
            section(name, me, random);
            if (nested) {
                lock.unlock();
            }
            lock.unlock();
            sections++;
        }
        client.getMap("stress:longest", StringCodec.INSTANCE)
                .put(me, Long.toString(TimeUnit.NANOSECONDS.toMillis(longest)));
        return new long[] {sections, missed};
    }

    private boolean acquire(RLock lock, Random random) throws InterruptedException {
        int wait = random.nextInt(LONGEST_WAIT_MS);
        switch (random.nextInt(5)) {
            case 0:
                return lock.tryLock();
            case 1:
                return lock.tryLock(wait, MS);
            case 2:
                return lock.tryLock(wait, lease, MS);
            case 3:
                lock.lock(lease, MS);
                return true;
            default:
                lock.lock();
                return true;
        }
    }

    private void section(String name, String me, Random random) throws InterruptedException {
        RScript script = client.getScript(StringCodec.INSTANCE);
        String counter = script.evalSha(RScript.Mode.READ_WRITE, enter, RScript.ReturnType.VALUE,
                List.of("stress:inside:" + name, "stress:counter:" + name, "stress:killed",
                        "stress:violations"), me);
        Thread.sleep(random.nextInt(LONGEST_WORK_MS));
        script.evalSha(RScript.Mode.READ_WRITE, leave, RScript.ReturnType.VALUE,
                List.of("stress:inside:" + name, "stress:counter:" + name, "stress:done",
                        "stress:violations"), me, Long.toString(Long.parseLong(counter) + 1));
    }
}
