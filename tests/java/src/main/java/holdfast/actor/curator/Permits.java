package holdfast.actor.curator;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;

/**
 * A semaphore with leases whose total is a count beneath it. {@code total to=n}; {@code acquire [n=1] [wait=ms]}
 * answers the leases' names; {@code release} gives back the oldest one of this handle.
 */
final class Permits {
    static final Map<String, Verb<? super Permits>> VERBS = Map.of(
            "total", (permits, request) -> {
                permits.total.setCount((int) request.number("to"));
                return "";
            },
            "acquire", Permits::acquire,
            "release", (permits, request) -> {
                permits.semaphore.returnLease(permits.held.removeFirst());
                return "";
            });

    private final SharedCount total;
    private final InterProcessSemaphoreV2 semaphore;
    private final Deque<Lease> held = new ArrayDeque<>();

    Permits(CuratorFramework client, String path) throws Exception {
        total = Kinds.started(new SharedCount(client, path + "/permits", 0));
        semaphore = new InterProcessSemaphoreV2(client, path, total);
    }

    private static Object acquire(Permits permits, Request request) throws Exception {
        int wanted = (int) request.number("n", 1);
        Collection<Lease> leases = request.has("wait")
                ? permits.semaphore.acquire(wanted, request.number("wait"), TimeUnit.MILLISECONDS)
                : permits.semaphore.acquire(wanted);
        if (leases == null) {
            return false;
        }
        permits.held.addAll(leases);
        StringBuilder names = new StringBuilder();
        for (Lease lease : leases) {
            names.append(lease.getNodeName()).append(' ');
        }
        return names;
    }
}
