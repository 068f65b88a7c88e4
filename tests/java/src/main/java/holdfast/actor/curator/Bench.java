package holdfast.actor.curator;

import holdfast.actor.Request;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;

/**
 * {@code bench url=U path=P clients=n pairs=n [server=PID]}: each client takes and gives back a mutex so often, all of
 * them the same one. Answers the pairs per second of all, of one client the median in microseconds, and the microseconds of
 * processor time that a pair has cost this process and the server.
 */
final class Bench {
    private final Request request;

    Bench(Request request) {
        this.request = request;
    }

    /** Of all threads of a process so far; the kernel counts in hundredths of a second. */
    private static long processorUs(String pid) throws IOException {
        String stat = Files.readString(Path.of("/proc/" + pid + "/stat"));
        String[] behindName = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return (Long.parseLong(behindName[11]) + Long.parseLong(behindName[12])) * 10000;
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
            CuratorFramework client = Clients.open(request.text("url"), request);
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
        String server = String.valueOf(request.number("server", ProcessHandle.current().pid()));
        long ours = processorUs("self");
        long theirs = processorUs(server);
        long begin = System.nanoTime();
        start.countDown();
        for (Thread thread : threads) {
            thread.join();
        }
        double seconds = (System.nanoTime() - begin) / 1e9;
        ours = processorUs("self") - ours;
        theirs = processorUs(server) - theirs;
        clients.forEach(CuratorFramework::close);
        Arrays.sort(ns[0]);
        long all = (long) count * pairs;
        return String.format(
            "%.1f %d %d %d", all / seconds, ns[0][pairs / 2] / 1000, ours / all, theirs / all);
    }
}
