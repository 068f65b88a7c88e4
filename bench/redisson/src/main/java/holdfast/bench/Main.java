package holdfast.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;
import org.redisson.config.TransportMode;

/**
 * Redisson's rows: lock+unlock pairs without contention by 1, 8 and 64 threads and by 64 in flight,
 * 8 clients contending for one name as fast as they can, the same with a fair lock, and 8 clients
 * draining it (all want it at once, each holds it for 1 ms, next round when all have had it).
 * Arguments: URL (redis://host:port or unix:///path), seconds a run, runs a row, seconds of warm-up
 * a row. Each run is one JSON line on standard output; warm-up prints nothing.
 *
 * <p>Redisson is used as it comes, with default settings. {@code cpu_s} is this process's CPU time
 * in the run and {@code rss_mb} its resident memory after it, both without the server's.
 */
public final class Main {
    private static final int CONTENDERS = 8;
    private static final String LINE = "{\"impl\":\"redisson\",\"row\":\"%s\",\"pairs_per_s\":%.0f,"
            + "\"p50_us\":%d,\"p99_us\":%d,\"cpu_s\":%.3f,\"rss_mb\":%.1f,\"pairs\":%d,"
            + "\"run\":%d}%n";

    private interface Workload {
        List<Samples> run(long nanos) throws Exception;
    }

    private final OperatingSystemMXBean system =
            (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    private final long run;
    private final int runs;
    private final long warmUp;

    private Main(long run, int runs, long warmUp) {
        this.run = run;
        this.runs = runs;
        this.warmUp = warmUp;
    }

    private static RedissonClient connect(String url) {
        Config config = new Config();
        String address = url;
        if (url.startsWith("unix://")) {
            address = "redis+uds://" + url.substring("unix://".length());
            config.setTransportMode(TransportMode.EPOLL);
        }
        config.useSingleServer().setAddress(address);
        return Redisson.create(config);
    }

    private static double residentMegabytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmRSS:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) / 1024.0;
            }
        }
        return 0;
    }

    private void measure(String row, Workload workload) throws Exception {
        workload.run(warmUp);
        for (int i = 0; i < runs; i++) {
            long cpu = system.getProcessCpuTime();
            long start = System.nanoTime();
            List<Samples> samples = workload.run(run);
            double seconds = (System.nanoTime() - start) / 1e9;
            double cpuSeconds = (system.getProcessCpuTime() - cpu) / 1e9;
            int[] sorted = Samples.merge(samples);
            System.out.printf(Locale.ROOT, LINE, row, sorted.length / seconds,
                    Samples.percentile(sorted, 50), Samples.percentile(sorted, 99), cpuSeconds,
                    residentMegabytes(), sorted.length, i + 1);
        }
    }

    private void measureOneClient(String url) throws Exception {
        RedissonClient client = connect(url);
        for (int count : new int[] {1, 8, 64}) {
            measure(count == 1 ? "1 thread" : count + " threads", nanos ->
                    Rows.threads(count, i -> client.getLock("bench-redisson-" + i), nanos));
        }
        measure("64 async", nanos -> Rows.async(client, 64, "bench-redisson-async-", nanos));
        client.shutdown();
    }

    private void measureContention(String url) throws Exception {
        List<RedissonClient> clients = new ArrayList<>();
        for (int i = 0; i < CONTENDERS; i++) {
            clients.add(connect(url));
        }
        measure(CONTENDERS + " clients contend", nanos -> Rows.threads(CONTENDERS,
                i -> clients.get(i).getLock("bench-redisson-contended"), nanos));
        measure(CONTENDERS + " clients, fair", nanos -> Rows.threads(CONTENDERS,
                i -> clients.get(i).getFairLock("bench-redisson-fair"), nanos));
        measure(CONTENDERS + " clients drain", nanos -> Rows.drain(CONTENDERS,
                i -> clients.get(i).getLock("bench-redisson-drained"), nanos));
        clients.forEach(RedissonClient::shutdown);
    }

    private static long nanos(String seconds) {
        return (long) (Double.parseDouble(seconds) * 1e9);
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 4) {
            System.err.println("usage: Main URL SECONDS RUNS WARMUP_SECONDS");
            System.exit(2);
        }
        int runs = Integer.parseInt(arguments[2]);
        Main main = new Main(nanos(arguments[1]), runs, nanos(arguments[3]));
        main.measureOneClient(arguments[0]);
        main.measureContention(arguments[0]);
        System.exit(0);
    }
}
