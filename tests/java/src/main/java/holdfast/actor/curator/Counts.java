package holdfast.actor.curator;

import holdfast.actor.Request;
import holdfast.actor.Verb;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** Numbers: {@code get}, {@code set to=n}, {@code swap to=n}; barriers: {@code set}, {@code lift}, {@code await [wait=ms]}. */
final class Counts {
    static final Map<String, Verb<? super SharedCount>> VERBS = Map.of(
            "get", (count, request) -> count.getCount(),
            "set", (count, request) -> {
                count.setCount((int) request.number("to"));
                return "";
            },
            "swap", (count, request) ->
                    count.trySetCount(count.getVersionedValue(), (int) request.number("to")));

    static final Map<String, Verb<? super DistributedBarrier>> BARRIER_VERBS = Map.of(
            "set", (barrier, request) -> {
                barrier.setBarrier();
                return "";
            },
            "lift", (barrier, request) -> {
                barrier.removeBarrier();
                return "";
            },
            "await", Counts::await);

    private Counts() {
    }

    private static Object await(DistributedBarrier barrier, Request request) throws Exception {
        if (request.has("wait")) {
            return barrier.waitOnBarrier(request.number("wait"), TimeUnit.MILLISECONDS);
        }
        barrier.waitOnBarrier();
        return true;
    }
}
