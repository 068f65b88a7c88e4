package holdfast.actor.redisson;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;

/** The verbs of everything that is an RLock. Times are milliseconds. */
final class Locks {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    static final Map<String, Verb<? super RLock>> VERBS = new HashMap<>();

    static {
        VERBS.put("lock", Locks::lock);
        VERBS.put("try", Locks::tryLock);
        VERBS.put("unlock", (lock, request) -> {
            lock.unlock();
            return "";
        });
        VERBS.put("force", (lock, request) -> lock.forceUnlock());
        VERBS.put("isLocked", (lock, request) -> lock.isLocked());
        VERBS.put("heldBy", (lock, request) ->
                lock.isHeldByThread(request.number("id", Thread.currentThread().getId())));
        VERBS.put("count", (lock, request) -> lock.getHoldCount());
        VERBS.put("ttl", (lock, request) -> lock.remainTimeToLive());
    }

    private Locks() {
    }

    private static Object lock(RLock lock, Request request) throws InterruptedException {
        if (request.has("lease")) {
            lock.lockInterruptibly(request.number("lease"), MS);
        } else {
            lock.lockInterruptibly();
        }
        return "";
    }

    private static Object tryLock(RLock lock, Request request) throws InterruptedException {
        if (request.has("lease")) {
            return lock.tryLock(request.number("wait", 0), request.number("lease"), MS);
        }
        if (request.has("wait")) {
            return lock.tryLock(request.number("wait"), MS);
        }
        return lock.tryLock();
    }
}
