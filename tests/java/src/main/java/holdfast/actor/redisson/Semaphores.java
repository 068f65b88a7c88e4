package holdfast.actor.redisson;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;

/**
 * The verbs of the synchronizers that have no owner: the counting semaphore, the semaphore with
 * permits that expire, and the latch. Permits are {@code permits=N} (1 if absent), permit ids are
 * words.
 */
final class Semaphores {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    private static final long NO_LEASE = -1;
    static final Map<String, Verb<? super RSemaphore>> COUNTING = new HashMap<>();
    static final Map<String, Verb<? super RPermitExpirableSemaphore>> EXPIRING = new HashMap<>();
    static final Map<String, Verb<? super RCountDownLatch>> LATCH = new HashMap<>();

    static {
        COUNTING.put("setPermits", (semaphore, request) -> request.has("ttl")
                ? semaphore.trySetPermits(request.permits(), duration(request, "ttl"))
                : semaphore.trySetPermits(request.permits()));
        COUNTING.put("acquire", (semaphore, request) -> {
            semaphore.acquire(request.permits());
            return "";
        });
        COUNTING.put("try", (semaphore, request) -> request.has("wait")
                ? semaphore.tryAcquire(request.permits(), request.number("wait"), MS)
                : semaphore.tryAcquire(request.permits()));
        COUNTING.put("release", (semaphore, request) -> {
            semaphore.release(request.permits());
            return "";
        });
        COUNTING.put("releaseIfExists", (semaphore, request) ->
                semaphore.releaseIfExists(request.permits()));
        COUNTING.put("add", (semaphore, request) -> {
            semaphore.addPermits(request.permits());
            return "";
        });
        COUNTING.put("drain", (semaphore, request) -> semaphore.drainPermits());
        COUNTING.put("available", (semaphore, request) -> semaphore.availablePermits());
        COUNTING.put("delete", (semaphore, request) -> semaphore.delete());

        EXPIRING.put("trySetPermits", (semaphore, request) ->
                semaphore.trySetPermits(request.permits()));
        EXPIRING.put("setPermits", (semaphore, request) -> {
            semaphore.setPermits(request.permits());
            return "";
        });
        EXPIRING.put("add", (semaphore, request) -> {
            semaphore.addPermits(request.permits());
            return "";
        });
        EXPIRING.put("acquire", Semaphores::acquire);
        EXPIRING.put("try", Semaphores::tryAcquire);
        EXPIRING.put("release", (semaphore, request) -> {
            if (request.wordsFrom(1).size() == 1) {
                semaphore.release(request.word(1));
            } else {
                semaphore.release(request.wordsFrom(1));
            }
            return "";
        });
        EXPIRING.put("tryRelease", (semaphore, request) -> request.wordsFrom(1).size() == 1
                ? semaphore.tryRelease(request.word(1))
                : semaphore.tryRelease(request.wordsFrom(1)));
        EXPIRING.put("available", (semaphore, request) -> semaphore.availablePermits());
        EXPIRING.put("permits", (semaphore, request) -> semaphore.getPermits());
        EXPIRING.put("acquired", (semaphore, request) -> semaphore.acquiredPermits());
        EXPIRING.put("updateLease", (semaphore, request) ->
                semaphore.updateLeaseTime(request.word(1), request.number("lease"), MS));
        EXPIRING.put("lease", (semaphore, request) -> semaphore.getLeaseTime(request.word(1)));
        EXPIRING.put("delete", (semaphore, request) -> semaphore.delete());

        LATCH.put("setCount", (latch, request) -> latch.trySetCount(request.number("count")));
        LATCH.put("countDown", (latch, request) -> {
            latch.countDown();
            return "";
        });
        LATCH.put("await", (latch, request) -> {
            if (request.has("wait")) {
                return latch.await(request.number("wait"), MS);
            }
            latch.await();
            return true;
        });
        LATCH.put("count", (latch, request) -> latch.getCount());
        LATCH.put("delete", (latch, request) -> latch.delete());
    }

    private Semaphores() {
    }

    private static Duration duration(Request request, String option) {
        return Duration.ofMillis(request.number(option));
    }

    /* One permit by the call that all versions of Redisson have, several by the newer one. */
    private static Object acquire(RPermitExpirableSemaphore semaphore, Request request)
            throws InterruptedException {
        long lease = request.number("lease", NO_LEASE);
        if (request.permits() == 1) {
            return semaphore.acquire(lease, MS);
        }
        return ids(semaphore.acquire(request.permits(), lease, MS));
    }

    private static Object tryAcquire(RPermitExpirableSemaphore semaphore, Request request)
            throws InterruptedException {
        long wait = request.number("wait", 0);
        long lease = request.number("lease", NO_LEASE);
        if (request.permits() == 1) {
            String id = semaphore.tryAcquire(wait, lease, MS);
            return id == null ? "" : id;
        }
        return ids(semaphore.tryAcquire(request.permits(), wait, lease, MS));
    }

    private static Object ids(List<String> ids) {
        return ids == null ? "" : String.join(" ", ids);
    }
}
