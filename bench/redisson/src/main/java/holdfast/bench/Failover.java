package holdfast.bench;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.Arrays;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.SentinelServersConfig;

/**
 * Redisson as a process of the failover's benchmark. Arguments: sentinel or cluster, seconds, ports. See
 * bench/failover/worker.c for what it does and prints. It has nobody to tell of a lock that is lost. Redisson is used as it comes,
 * with default settings.
 */
public final class Failover {
    private Failover() {
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    private static Config find(String topology, List<String> addresses) {
        Config config = new Config();
        if (topology.equals("cluster")) {
            ClusterServersConfig servers = config.useClusterServers();
            addresses.forEach(servers::addNodeAddress);
        } else {
            SentinelServersConfig servers = config.useSentinelServers().setMasterName("guards");
            addresses.forEach(servers::addSentinelAddress);
        }
        return config;
    }

    public static void main(String[] args) throws InterruptedException {
        List<String> addresses = Arrays.stream(args).skip(2).map(port -> "redis://127.0.0.1:" + port).toList();
        Config config = find(args[0], addresses);
        RedissonClient client = Redisson.create(config);
        client.getLock("held-redisson").lock();
        client.getLock("lost-redisson").lock();
        RLock lock = client.getLock("calls-redisson");
        System.out.println("ready");
        long end = now() + Long.parseLong(args[1]) * 1_000_000;
        while (now() < end) {
            long began = now();
            String result = "ok";
            try {
                lock.lock();
                lock.unlock();
            } catch (RuntimeException e) {
                result = e.getClass().getSimpleName();
            }
            System.out.println("call " + began + ' ' + now() + ' ' + result);
            Thread.sleep(10);
        }
        System.exit(0); // without giving anything back
    }
}
