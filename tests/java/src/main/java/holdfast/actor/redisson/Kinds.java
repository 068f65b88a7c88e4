package holdfast.actor.redisson;

import holdfast.actor.Verb;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.function.BiFunction;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/** Every kind that can be opened: its name in commands, how Redisson makes it, and its verbs. */
final class Kinds {
    /** Opens an object of one kind by its name. */
    private interface Opener extends BiFunction<RedissonClient, String, Verb.Bound<?>> {
    }

    private static final Map<String, Opener> TABLE = Map.ofEntries(
            Map.entry("plain", (c, name) -> new Verb.Bound<>(c.getLock(name), Locks.VERBS)),
            Map.entry("spin", (c, name) -> new Verb.Bound<>(c.getSpinLock(name), Locks.VERBS)),
            Map.entry("nonreentrant",
                    (c, name) -> new Verb.Bound<>(c.getNonReentrantLock(name), Locks.VERBS)),
            Map.entry("fenced",
                    (c, name) -> new Verb.Bound<>(c.getFencedLock(name), FencedLocks.VERBS)),
            Map.entry("fair", (c, name) -> new Verb.Bound<>(c.getFairLock(name), Locks.VERBS)),
            Map.entry("nonreentrantfair",
                    (c, name) -> new Verb.Bound<>(c.getNonReentrantFairLock(name), Locks.VERBS)),
            Map.entry("read", (c, name) ->
                    new Verb.Bound<>(c.getReadWriteLock(name).readLock(), Locks.VERBS)),
            Map.entry("write", (c, name) ->
                    new Verb.Bound<>(c.getReadWriteLock(name).writeLock(), Locks.VERBS)),
            Map.entry("group", (c, name) -> new Verb.Bound<>(group(c, name), Locks.VERBS)),
            Map.entry("semaphore",
                    (c, name) -> new Verb.Bound<>(c.getSemaphore(name), Semaphores.COUNTING)),
            Map.entry("permits", (c, name) ->
                    new Verb.Bound<>(c.getPermitExpirableSemaphore(name), Semaphores.EXPIRING)),
            Map.entry("latch",
                    (c, name) -> new Verb.Bound<>(c.getCountDownLatch(name), Semaphores.LATCH)));

    private Kinds() {
    }

    /** The name is the group's and then the values, with a bar before each. */
    private static RLock group(RedissonClient client, String name) {
        String[] words = name.split("\\|", -1);
        return client.getMultiLock(words[0], new ArrayList<Object>(
                Arrays.asList(words).subList(1, words.length)));
    }

    /** A lock made of several may have several clients; any other kind has one. */
    static Verb.Bound<?> open(List<RedissonClient> clients, String kind, String name) {
        if (JointLocks.isKind(kind)) {
            return new Verb.Bound<>(JointLocks.open(clients, kind, name), Locks.VERBS);
        }
        Opener opener = TABLE.get(kind);
        if (opener == null) {
            throw new IllegalArgumentException("no kind " + kind);
        }
        return opener.apply(clients.get(0), name);
    }
}
