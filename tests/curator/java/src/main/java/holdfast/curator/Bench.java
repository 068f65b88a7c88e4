package holdfast.curator;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * {@code bench hosts=H path=P clients=n pairs=n}: each client takes and gives back a mutex so often, all of them the
 * same one. Answers the pairs per second of all, and of one client the median in microseconds.
 */
final class Bench {
    private final Request request;

    Bench(Request request) {
        this.request = request;
    }

    private static void play(InterProcessMutex mutex, long[] ns) throws Exception {
        for (int i = 0; i < ns.length; i++) {
            long begin = System.nanoTime();
            mutex.acquire();
            mutex.release();
            ns[i] = System.nanoTime() - begin;
        }
    }

    Object run() throws Exception {
        int count = (int) request.number("clients", 1);
        int pairs = (int) request.number("pairs");
        List<CuratorFramework> clients = new ArrayList<>();
        List<Thread> threads = new ArrayList<>();
        CountDownLatch start = new CountDownLatch(1);
        long[][] ns = new long[count][pairs];
        for (int i = 0; i < count; i++) {
            CuratorFramework client = Clients.open(request.text("hosts"), request);
            InterProcessMutex mutex = new InterProcessMutex(client, request.text("path"));
            play(mutex, new long[(int) request.number("warm", 0)]);
            clients.add(client);
            long[] mine = ns[i];
            threads.add(new Thread(() -> {
                try {
                    start.await();
                    play(mutex, mine);
                } catch (Exception e) {
                    throw new IllegalStateException(e);
                }
            }));
        }
        threads.forEach(Thread::start);
        long begin = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        clients.forEach(CuratorFramework::close);
        Arrays.sort(ns[0]);
        return String.format("%.1f %d", count * pairs / seconds, ns[0][pairs / 2] / 1000);
    }
}
