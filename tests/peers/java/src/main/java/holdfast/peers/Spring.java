package holdfast.peers;

import java.time.Duration;
import java.util.ConcurrentModificationException;
import java.util.concurrent.TimeUnit;
import org.springframework.data.redis.connection.RedisConnectionFactory;
import org.springframework.data.redis.connection.lettuce.LettuceConnectionFactory;
import org.springframework.integration.redis.util.RedisLockRegistry;
import org.springframework.integration.redis.util.RedisLockRegistry.RedisLockType;
import org.springframework.integration.support.locks.DistributedLock;

/** A lock of Spring Integration, in a registry of its own that is called "locks". */
final class Spring implements Peer {
    private final RedisLockRegistry registry;
    private final DistributedLock lock;
    private final String name;

    Spring(RedisLockType type, String name, Duration lease, int port) {
        registry = new RedisLockRegistry(connect(port), "locks", lease);
        registry.setRedisLockType(type);
        lock = registry.obtain(name);
        this.name = name;
    }

    static RedisConnectionFactory connect(int port) {
        LettuceConnectionFactory factory = new LettuceConnectionFactory("127.0.0.1", port);
        factory.afterPropertiesSet();
        factory.start();
        return factory;
    }

    @Override
    public boolean tryOnce() {
        return lock.tryLock();
    }

    @Override
    public boolean take() throws InterruptedException {
        return lock.tryLock(60, TimeUnit.SECONDS);
    }

    @Override
    public boolean extend() {
        try {
            registry.renewLock(name);
            return true;
        } catch (IllegalStateException e) {
            return false;
        }
    }

    @Override
    public boolean release() {
        try {
            lock.unlock();
            return true;
        } catch (ConcurrentModificationException | IllegalStateException e) {
            return false;
        }
    }
}
