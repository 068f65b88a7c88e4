package holdfast.peers;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import redis.clients.jedis.Jedis;

/** Locks of Java's libraries under remote control: ../README.md of this project lists the commands. One runs at a time. */
public final class Main {
    private final Map<String, Peer> handles = new HashMap<>();

    private static Peer open(String peer, String name, Duration lease, int port) {
        return switch (peer) {
            case "shedlock" -> ShedLock.careless(name, lease, port);
            case "shedlock-safe" -> ShedLock.safe(name, lease, port);
            case "spring" -> new Spring(RedisLockType.SPIN_LOCK, name, lease, port);
            case "spring-pubsub" -> new Spring(RedisLockType.PUB_SUB_LOCK, name, lease, port);
            default -> throw new IllegalArgumentException("no such peer");
        };
    }

    /** Steps in a book that only an exclusive owner may take: what was read is what is written over. */
    private static String work(Peer peer, int rounds, int port) throws Exception {
        try (Jedis book = new Jedis("127.0.0.1", port)) {
            for (int i = 0; i < rounds; i++) {
                while (!peer.take()) {}
                String page = book.get("book");
                Thread.sleep(2); /* its work, in which it must be alone */
                book.set("book", Long.toString(page == null ? 1 : Long.parseLong(page) + 1));
                peer.release();
            }
        }
        return "ok";
    }

    private String obey(String[] words) throws Exception {
        if (words[1].equals("ping")) {
            return "ok";
        }
        if (words[1].equals("open")) {
            Duration lease = Duration.ofMillis(Long.parseLong(words[5]));
            handles.put(words[2], open(words[3], words[4], lease, Integer.parseInt(words[6])));
            return "ok";
        }
        Peer peer = handles.get(words[2]);
        return switch (words[1]) {
            case "try" -> peer.tryOnce() ? "ok" : "busy";
            case "take" -> peer.take() ? "ok" : "busy";
            case "extend" -> peer.extend() ? "ok" : "lost";
            case "release" -> peer.release() ? "ok" : "lost";
            case "locked" -> "silent"; // They have no such call.
            case "work" -> work(peer, Integer.parseInt(words[3]), Integer.parseInt(words[4]));
            default -> throw new IllegalArgumentException("no such command");
        };
    }

    public static void main(String[] args) throws Exception {
        Main main = new Main();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            String answer;
            try {
                answer = main.obey(words);
            } catch (Exception e) {
                answer = ("err " + e.getClass().getSimpleName() + ' ' + e.getMessage()).replace('\n', ' ');
            }
            System.out.println(words[0] + ' ' + answer);
        }
        Runtime.getRuntime().halt(0); // The libraries keep threads.
    }
}
