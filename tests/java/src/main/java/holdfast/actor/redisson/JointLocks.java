package holdfast.actor.redisson;

import java.util.List;
import org.redisson.RedissonMultiLock;
import org.redisson.RedissonRedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * Locks made of several: {@code redlock}, of which more than half are enough; {@code multi}, which is
 * all of them; {@code multimulti}, one that is made of such a one.
 */
final class JointLocks {
    private JointLocks() {
    }

    static boolean isKind(String kind) {
        return kind.equals("redlock") || kind.equals("multi") || kind.equals("multimulti");
    }

    /**
     * The name is the members', with a bar between, and each is a lock of the next client; so it is
     * one name at each of the clients, some names at one client, or as many as there are clients.
     */
    static RLock open(List<RedissonClient> clients, String kind, String name) {
        String[] names = name.split("\\|", -1);
        RLock[] members = new RLock[Math.max(names.length, clients.size())];
        for (int i = 0; i < members.length; i++) {
            members[i] = clients.get(i % clients.size()).getLock(names[i % names.length]);
        }
        if (kind.equals("redlock")) {
            return new RedissonRedLock(members);
        }
        RLock multi = new RedissonMultiLock(members);
        return kind.equals("multi") ? multi : new RedissonMultiLock(multi);
    }
}
