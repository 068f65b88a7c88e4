package holdfast.bench;

import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Scanner;
import org.redisson.Redisson;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Redisson's RedLock as a process of the quorum's benchmark. Arguments: name, milliseconds to
 * warm up, to hold and to think, ports. See bench/quorum/worker.c for what it does and prints. Redisson is used as it comes, with default settings.
 */
public final class RedLock {
    private RedLock() {
    }

    private static long now() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    // Redisson 4 has deprecated it, with nothing in its place that asks a majority.
    @SuppressWarnings("deprecation")
    private static RLock redLock(List<RedissonClient> clients, String name) {
        return new RedissonRedLock(
                clients.stream().map(client -> client.getLock(name)).toArray(RLock[]::new));
    }

    private static void pair(RLock lock, long holdMs, StringBuilder out)
            throws InterruptedException {
        long began = now();
        lock.lock();
        long acquired = now();
        Thread.sleep(holdMs);
        long releasing = now();
        lock.unlock();
        out.append(began).append(' ').append(acquired).append(' ').append(releasing).append(' ')
                .append(now()).append('\n');
    }

    public static void main(String[] args) throws InterruptedException {
        long[] numbers = Arrays.stream(args).skip(1).mapToLong(Long::parseLong).toArray();
        List<RedissonClient> clients = new ArrayList<>();
        for (int i = 3; i < numbers.length; i++) {
            Config config = new Config();
            config.useSingleServer().setAddress("redis://127.0.0.1:" + numbers[i]);
            clients.add(Redisson.create(config));
        }
        RLock warm = redLock(clients, args[0] + "-warm-" + ProcessHandle.current().pid());
        StringBuilder ignored = new StringBuilder();
        long warmUntil = System.currentTimeMillis() + numbers[0];
        while (System.currentTimeMillis() < warmUntil) {
            pair(warm, 0, ignored);
        }
        RLock lock = redLock(clients, args[0]);
        System.out.println("ready");
        Scanner input = new Scanner(System.in);
        long start = input.nextLong();
        long end = input.nextLong();
        Thread.sleep(Math.max(0, start - System.currentTimeMillis()));
        StringBuilder out = new StringBuilder();
        while (System.currentTimeMillis() < end) {
            pair(lock, numbers[1], out);
            Thread.sleep(numbers[2]);
        }
        System.out.print(out);
        clients.forEach(RedissonClient::shutdown);
    }
}
