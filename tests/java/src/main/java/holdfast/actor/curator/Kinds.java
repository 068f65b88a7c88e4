package holdfast.actor.curator;

import holdfast.actor.Verb;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.barriers.DistributedBarrier;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** Every kind that can be opened: its name in commands, the recipe, and its verbs. */
final class Kinds {
    /** Opens an object of one kind by its path. */
    private interface Opener {
        Verb.Bound<?> open(CuratorFramework client, String path) throws Exception;
    }

    private static final Map<String, Opener> TABLE = Map.of(
            "mutex", (c, path) -> lock(new InterProcessMutex(c, path)),
            "multi", (c, paths) -> lock(multi(c, paths)),
            "permits", (c, path) -> new Verb.Bound<>(new Permits(c, path), Permits.VERBS),
            "count", (c, path) -> new Verb.Bound<>(started(new SharedCount(c, path, 0)), Counts.VERBS),
            "barrier", (c, path) -> new Verb.Bound<>(new DistributedBarrier(c, path), Counts.BARRIER_VERBS));

    private Kinds() {
    }

    private static Verb.Bound<InterProcessLock> lock(InterProcessLock lock) {
        return new Verb.Bound<>(lock, Locks.VERBS);
    }

    private static InterProcessLock multi(CuratorFramework client, String paths) {
        List<String> list = new ArrayList<>(List.of(paths.split(",")));
        return new InterProcessMultiLock(client, list);
    }

    static SharedCount started(SharedCount count) throws Exception {
        count.start();
        return count;
    }

    static Verb.Bound<?> open(CuratorFramework client, String kind, String path) throws Exception {
        Opener opener = TABLE.get(kind);
        if (opener == null) {
            throw new IllegalArgumentException("no kind " + kind);
        }
        return opener.open(client, path);
    }

    /** Both sides of one lock: a downgrade is known to Curator only within one object. */
    static Verb.Bound<?>[] openReadWrite(CuratorFramework client, String path) {
        InterProcessReadWriteLock both = new InterProcessReadWriteLock(client, path);
        return new Verb.Bound<?>[] {lock(both.readLock()), lock(both.writeLock())};
    }
}
