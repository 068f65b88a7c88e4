package holdfast.actor.redisson;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFencedLock;

/**
 * The verbs of a fenced lock: those of every lock, and its tokens. A class of its own, since older
 * versions of Redisson have no such lock, and a client that does not use it must not need it.
 */
final class FencedLocks {
    private static final TimeUnit MS = TimeUnit.MILLISECONDS;
    static final Map<String, Verb<? super RFencedLock>> VERBS = new HashMap<>();

    static {
        VERBS.putAll(Locks.VERBS);
        VERBS.put("token", (lock, request) -> lock.getToken());
        VERBS.put("lockToken", (lock, request) -> request.has("lease")
                ? lock.lockAndGetToken(request.number("lease"), MS)
                : lock.lockAndGetToken());
        VERBS.put("tryToken", FencedLocks::tryToken);
    }

    private FencedLocks() {
    }

    private static Object tryToken(RFencedLock lock, Request request) {
        if (request.has("lease")) {
            return lock.tryLockAndGetToken(request.number("wait", 0), request.number("lease"), MS);
        }
        if (request.has("wait")) {
            return lock.tryLockAndGetToken(request.number("wait"), MS);
        }
        return lock.tryLockAndGetToken();
    }
}
