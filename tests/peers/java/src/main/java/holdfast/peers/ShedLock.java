package holdfast.peers;

import java.time.Duration;
import java.time.Instant;
import java.util.Optional;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.core.SimpleLock;
import net.javacrumbs.shedlock.provider.redis.jedis4.JedisLockProvider;
import net.javacrumbs.shedlock.provider.redis.spring.RedisLockProvider;
import redis.clients.jedis.JedisPool;

/**
 * ShedLock, of the environment "test". It never waits, and its release says nothing of a lock that was lost. The one for Jedis
 * deletes and extends whatever is there; the one for Spring, made with safeUpdate, only its own.
 */
final class ShedLock implements Peer {
    private static final String ENVIRONMENT = "test";

    private final LockProvider provider;
    private final String name;
    private final Duration lease;
    private SimpleLock lock;

    private ShedLock(LockProvider provider, String name, Duration lease) {
        this.provider = provider;
        this.name = name;
        this.lease = lease;
    }

    static Peer careless(String name, Duration lease, int port) {
        return new ShedLock(new JedisLockProvider(new JedisPool("127.0.0.1", port), ENVIRONMENT), name, lease);
    }

    static Peer safe(String name, Duration lease, int port) {
        LockProvider provider = new RedisLockProvider.Builder(Spring.connect(port))
                .environment(ENVIRONMENT)
                .safeUpdate(true)
                .build();
        return new ShedLock(provider, name, lease);
    }

    private boolean keep(Optional<SimpleLock> taken) {
        taken.ifPresent(it -> lock = it);
        return taken.isPresent();
    }

    @Override
    public boolean tryOnce() {
        return keep(provider.lock(new LockConfiguration(Instant.now(), name, lease, Duration.ZERO)));
    }

    /** What its users do: the next schedule comes. */
    @Override
    public boolean take() throws InterruptedException {
        for (Instant end = Instant.now().plusSeconds(60); Instant.now().isBefore(end); Thread.sleep(50)) {
            if (tryOnce()) {
                return true;
            }
        }
        return false;
    }

    @Override
    public boolean extend() {
        return keep(lock.extend(lease, Duration.ZERO));
    }

    @Override
    public boolean release() {
        try {
            lock.unlock();
            return true;
        } catch (IllegalStateException e) {
            return false; // After an extension in vain.
        }
    }
}
