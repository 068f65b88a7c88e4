package holdfast.actor.curator;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.locks.InterProcessLock;

/** {@code lock [wait=ms]} answers whether it is held; {@code unlock}, {@code held}, {@code stress} (see Stress). */
final class Locks {
    static final Map<String, Verb<? super InterProcessLock>> VERBS = Map.of(
            "lock", Locks::lock,
            "unlock", (lock, request) -> {
                lock.release();
                return "";
            },
            "held", (lock, request) -> lock.isAcquiredInThisProcess(),
            "stress", (lock, request) -> new Stress(lock, request).run());

    private Locks() {
    }

    private static Object lock(InterProcessLock lock, Request request) throws Exception {
        if (request.has("wait")) {
            return lock.acquire(request.number("wait"), TimeUnit.MILLISECONDS);
        }
        lock.acquire();
        return true;
    }
}
