package holdfast.actor.redisson;

import holdfast.actor.Request;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * The Java half of the mixed stress test: worker threads that acquire in every way there is and,
 * while they hold something, keep the ledger that shows whether they were alone with it. The two
 * scripts (stress_enter.lua, stress_leave.lua) are loaded by the driver; the C workers run the same
 * ones.
 *
 * <p>Options: places=kind:name,... (see Places), process=P (this client's name in the ledger),
 * workers=n, seed=n, ms=n (how long at most; it is over when there is a key stress:over), lease=ms
 * (fixed leases), enter=sha1, leave=sha1. Answers "sections=n missed=n".
 */
final class Stress {
    private static final int LONGEST_WORK_MS = 4;

    private final RedissonClient client;
    private final List<Places.Place> places = new ArrayList<>();
    private final String process;
    private final int workers;
    private final long seed;
    private final String enter;
    private final String leave;
    private final long end;

    /** The members are the clients of locks that are made of several. */
    Stress(RedissonClient client, List<RedissonClient> members, Request request) {
        this.client = client;
        long lease = request.number("lease");
        for (String place : request.text("places").split(",")) {
            int colon = place.indexOf(':');
            String kind = place.substring(0, colon);
            String name = place.substring(colon + 1);
            places.add(JointLocks.isKind(kind)
                    ? Places.openJoint(members, kind, name, lease)
                    : Places.open(client, kind, name, lease));
        }
        process = request.text("process");
        workers = (int) request.number("workers", 2);
        seed = request.number("seed");
        enter = request.text("enter");
        leave = request.text("leave");
        end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(request.number("ms"));
    }

    /** Runs the same for each worker's number, at the same time; the results in that order. */
    static <T> List<T> inThreads(int count, java.util.function.IntFunction<Callable<T>> body)
            throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(count);
        try {
            List<Future<T>> running = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                running.add(threads.submit(body.apply(i)));
            }
            List<T> results = new ArrayList<>();
            for (Future<T> one : running) {
                results.add(one.get());
            }
            return results;
        } finally {
            threads.shutdownNow();
        }
    }

    static void noteLongest(RedissonClient client, String me, long longest, String where) {
        client.getMap("stress:longest", StringCodec.INSTANCE)
                .put(me, TimeUnit.NANOSECONDS.toMillis(longest) + " ms at " + where);
    }

    Object run() throws Exception {
        long sections = 0;
        long missed = 0;
        for (long[] result : inThreads(workers,
                i -> () -> work(process + '/' + i, new Random(seed + i)))) {
            sections += result[0];
            missed += result[1];
        }
        return "sections=" + sections + " missed=" + missed;
    }

    private boolean isOver() {
        return System.nanoTime() - end >= 0
                || client.getBucket("stress:over", StringCodec.INSTANCE).isExists();
    }

    private long[] work(String me, Random random) throws InterruptedException {
        long sections = 0;
        long missed = 0;
        long longest = 0;
        String where = "";
        while (!isOver()) {
            Places.Place place = places.get(random.nextInt(places.size()));
            long start = System.nanoTime();
            Places.Visit visit = place.enter(random);
            if (System.nanoTime() - start > longest) {
                longest = System.nanoTime() - start;
                where = place.name();
            }
            if (visit == null) {
                missed++;
                continue;
            }
            section(place, visit, me, random);
            if (visit.downgrade(random)) {
                section(place, visit, me, random);
            }
            visit.leave();
            sections++;
        }
        noteLongest(client, me, longest, where);
        return new long[] {sections, missed};
    }

    private void section(Places.Place place, Places.Visit visit, String me, Random random)
            throws InterruptedException {
        RScript script = client.getScript(StringCodec.INSTANCE);
        String weight = Long.toString(visit.weight());
        String capacity = Long.toString(place.capacity());
        String counter = script.evalSha(RScript.Mode.READ_WRITE, enter, RScript.ReturnType.VALUE,
                List.of("stress:inside:" + place.name(), "stress:counter:" + place.name(),
                        "stress:killed", "stress:violations", "stress:token:" + place.name()),
                me, weight, capacity, Long.toString(visit.token()));
        Thread.sleep(random.nextInt(LONGEST_WORK_MS)); /* its work, in which it must be alone */
        script.evalSha(RScript.Mode.READ_WRITE, leave, RScript.ReturnType.VALUE,
                List.of("stress:inside:" + place.name(), "stress:counter:" + place.name(),
                        "stress:done", "stress:violations", "stress:alone"),
                me, weight, capacity, counter);
    }
}
