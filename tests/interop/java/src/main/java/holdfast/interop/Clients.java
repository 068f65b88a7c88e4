package holdfast.interop;

import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;
import org.redisson.config.TransportMode;

/** Makes Redisson clients from a url and the options of a {@code client} command. */
final class Clients {
    private Clients() {
    }

    /* Older versions cannot be told, and take five minutes. */
    private static void setFairWait(Config config, long ms) {
        try {
            config.setFairLockWaitTimeout(ms);
        } catch (NoSuchMethodError e) {
            System.err.println("fairwait is not known to this version");
        }
    }

    /**
     * Its connections have the name at the server. {@code unix:///path} is put into Redisson's
     * spelling; other urls are Redisson's already.
     */
    static RedissonClient open(String name, String url, Request request) {
        Config config = new Config();
        String address = url;
        if (url.startsWith("unix://")) {
            address = "redis+uds://" + url.substring("unix://".length());
            config.setTransportMode(TransportMode.EPOLL);
        }
        /* The defaults, 16 and 32 threads, are for a server; several clients share this JVM. */
        config.setThreads((int) request.number("threads", 2));
        config.setNettyThreads((int) request.number("netty", 2));
        config.setLockWatchdogTimeout(request.number("watchdog", config.getLockWatchdogTimeout()));
        if (request.has("codec")) {
            config.setCodec(StringCodec.INSTANCE); /* the only one that is asked for */
        }
        if (request.has("fairwait")) {
            setFairWait(config, request.number("fairwait"));
        }

        SingleServerConfig server = config.useSingleServer().setAddress(address);
        server.setClientName(name);
        server.setConnectionMinimumIdleSize(1);
        server.setConnectionPoolSize((int) request.number("pool", 16));
        server.setTimeout((int) request.number("timeout", server.getTimeout()));
        server.setRetryAttempts((int) request.number("retries", server.getRetryAttempts()));
        return Redisson.create(config);
    }
}
