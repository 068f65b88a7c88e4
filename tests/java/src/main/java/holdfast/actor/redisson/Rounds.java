package holdfast.actor.redisson;

import holdfast.actor.Request;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RAtomicLong;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/**
 * The Java half of the latch's mixed stress test: workers of all processes go through rounds together.
 * Two latches take turns. In each round every worker closes the round's latch if nobody has yet, notes
 * that it came, counts down and waits for the others; one that gets out before all have come has found
 * a violation. tests/interop/stress_rounds.c is the same in C.
 *
 * <p>Options: process=P, workers=n (here), parties=n (in all processes), rounds=n. Answers
 * "early=n".
 */
final class Rounds {
    private static final long HANG_SECONDS = 60;
    private final RedissonClient client;
    private final String process;
    private final int workers;
    private final long parties;
    private final long rounds;

    Rounds(RedissonClient client, Request request) {
        this.client = client;
        process = request.text("process");
        workers = (int) request.number("workers", 2);
        parties = request.number("parties");
        rounds = request.number("rounds");
    }

    Object run() throws Exception {
        long early = 0;
        for (long found : Stress.inThreads(workers, i -> () -> work(process + '/' + i))) {
            early += found;
        }
        return "early=" + early;
    }

    private long work(String me) throws InterruptedException {
        long early = 0;
        long longest = 0;
        for (long round = 0; round < rounds; round++) {
            RCountDownLatch latch = client.getCountDownLatch("rounds-" + round % 2);
            RAtomicLong came = client.getAtomicLong("stress:came:" + round);
            latch.trySetCount(parties);
            came.incrementAndGet();
            latch.countDown();
            long start = System.nanoTime();
            if (!latch.await(HANG_SECONDS, TimeUnit.SECONDS)) {
                throw new IllegalStateException("round " + round + " does not end");
            }
            longest = Math.max(longest, System.nanoTime() - start);
            early += came.get() == parties ? 0 : 1;
        }
        Stress.noteLongest(client, me, longest, "rounds");
        return early;
    }
}
